//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// People change their minds in the middle of a rollout. Each journey begins with 6 machines of one class that are being
// exchanged for those of another, 2 at a time; pods whose budget lets none go hold it up halfway.
//
// Rules: scale-during-rollout-in-proportion, failing-revision-stops, rollback-reuses-set,
// pause-stops-rollout-not-scaling, outdated-node-taints.
func TestJourneys(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.quick()
	m.fleet(6, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(2)),
				MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}
	})
	m.running(6)

	t.Log("pause: nothing is exchanged any more, the fleet still follows replicas, and the rollout can go on")
	m.rollHalfway("pause", examples.LargeClass)
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	m.kubectl("wait", "md/workers", "--for=condition=Paused", "--timeout=60s")
	m.liftBudget("pause")
	m.classes("the old machines that were leaving are gone, and the others stay",
		map[string]int{examples.SmallClass: 4, examples.LargeClass: 4})
	m.kubectl("scale", "md/workers", "--replicas=8")
	// 8 and a surge of 2, in proportion.
	m.classes("both revisions grow", map[string]int{examples.SmallClass: 5, examples.LargeClass: 5})
	contains(t, m.kubectl("describe", "md/workers"), "DeploymentPaused")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	m.classes("the rollout went on", map[string]int{examples.LargeClass: 8})
	m.rolledOut(map[string]int{})

	t.Log("scale: down and up while machines are exchanged")
	m.kubectl("scale", "md/workers", "--replicas=6")
	m.running(6)
	m.rollHalfway("scale", examples.SmallClass)
	m.kubectl("scale", "md/workers", "--replicas=3")
	m.await("fewer machines", func(machines []v1beta1.Machine) bool { return living(machines) <= 5 })
	m.kubectl("scale", "md/workers", "--replicas=9")
	m.await("more machines", func(machines []v1beta1.Machine) bool { return living(machines) > 8 })
	m.liftBudget("scale")
	m.classes("all of the new class", map[string]int{examples.SmallClass: 9})
	m.rolledOut(map[string]int{})

	t.Log("undo: the old machines that are left stay, and their nodes are as before")
	m.kubectl("scale", "md/workers", "--replicas=6")
	m.running(6)
	m.rollHalfway("undo", examples.LargeClass)
	var left []types.UID
	for _, machine := range m.await("machines", func([]v1beta1.Machine) bool { return true }) {
		if machine.Spec.ClassRef.Name == examples.SmallClass && machine.DeletionTimestamp.IsZero() {
			left = append(left, machine.UID)
		}
	}
	m.rollTo(examples.SmallClass)
	m.liftBudget("undo")
	m.classes("all of the old class", map[string]int{examples.SmallClass: 6})
	m.rolledOut(map[string]int{})
	stayed := 0
	for _, machine := range m.running(6) {
		if slices.Contains(left, machine.UID) {
			stayed++
		}
	}
	if len(left) != 4 || stayed != 4 {
		t.Errorf("%d machines of the old class were left, and %d of them stayed, expected 4 and 4", len(left), stayed)
	}

	t.Log("a class that the cloud refuses: the rollout stops by itself, and goes on when the deployment names a better one")
	m.apply(classManifest("broken", "no-such-type"))
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":3}}}}`)
	m.rollTo("broken")
	eventually(t, "the rollout stops", func() (bool, string) {
		d := m.deployment()
		for _, c := range d.Status.Conditions {
			if c.Type == v1beta1.ConditionProgressing && c.Reason == v1beta1.ReasonRevisionFailing {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", d.Status.Conditions)
	})
	contains(t, m.kubectl("describe", "md/workers"), "RevisionFailing", "no-such-type")
	if serving := m.countByClass()[examples.SmallClass]; serving != 6 {
		t.Errorf("%d machines of the old class serve while the new one is refused, expected 6", serving)
	}
	m.apply(classManifest("mended", "medium"))
	m.rollTo("mended")
	m.classes("all of the mended class", map[string]int{"mended": 6})
	m.rolledOut(map[string]int{})

	m.kubectl("delete", "md/workers", "--wait=false")
	m.none()
	if n := m.live(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
	m.noTwins()
}

// rollTo makes the deployment one of another class.
func (m *machinist) rollTo(class string) {
	m.t.Helper()
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		class+`"}}}}}`)
}

// rollHalfway rolls 6 running machines to another class until pods of an app hold it up: 2 old machines are leaving, 4
// stay, and 4 new ones run.
func (m *machinist) rollHalfway(app, class string) {
	m.t.Helper()
	machines := m.running(6)
	var nodes []string
	for i := range machines {
		nodes = append(nodes, machines[i].Status.NodeRef.Name)
	}
	m.protectedPods(app, nodes...)
	old := machines[0].Spec.ClassRef.Name
	m.rollTo(class)
	m.classes("halfway", map[string]int{old: 4, class: 4, "leaving": 2})
	m.marks(map[string]int{old: 4})
}

// classes waits until there are so many running machines of each class, and "leaving" ones.
func (m *machinist) classes(what string, want map[string]int) {
	m.t.Helper()
	m.await(fmt.Sprintf("%s: %v", what, want), func(machines []v1beta1.Machine) bool {
		have := byClass(machines)
		return fmt.Sprint(have) == fmt.Sprint(want)
	})
}

func (m *machinist) countByClass() map[string]int {
	m.t.Helper()
	return byClass(m.await("machines", func([]v1beta1.Machine) bool { return true }))
}

func byClass(machines []v1beta1.Machine) map[string]int {
	n := map[string]int{}
	for i := range machines {
		switch {
		case !machines[i].DeletionTimestamp.IsZero():
			n["leaving"]++
		case machines[i].Status.Phase == v1beta1.MachineRunning:
			n[machines[i].Spec.ClassRef.Name]++
		default:
			n["coming"]++
		}
	}
	return n
}

func living(machines []v1beta1.Machine) (n int) {
	for i := range machines {
		if machines[i].DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// rolledOut waits until the deployment says that its rollout is complete, and so many Nodes of each class are marked.
func (m *machinist) rolledOut(marked map[string]int) {
	m.t.Helper()
	m.kubectl("wait", "md/workers", "--for=condition=RollingOut=False", "--timeout=60s")
	m.marks(marked)
}

// marks waits until so many Nodes of live machines of each class are marked as outdated, and no others.
func (m *machinist) marks(want map[string]int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the marked nodes are %v", want), func() (bool, string) {
		have := map[string]int{}
		for _, machine := range m.await("machines", func([]v1beta1.Machine) bool { return true }) {
			if machine.Status.NodeRef == nil || !machine.DeletionTimestamp.IsZero() {
				continue
			}
			node := m.node(&machine)
			tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == v1beta1.NodeTaintOutdated && t.Effect == corev1.TaintEffectPreferNoSchedule
			})
			if preserved := node.Annotations[v1beta1.NodeAnnotationScaleDownDisabled] == "true"; preserved != tainted {
				return false, fmt.Sprintf("node %s is tainted: %v, and kept from autoscalers: %v", node.Name, tainted, preserved)
			}
			if tainted {
				have[machine.Spec.ClassRef.Name]++
			}
		}
		return fmt.Sprint(have) == fmt.Sprint(want), fmt.Sprint(have)
	})
}

// apply gives kubectl a manifest.
func (m *machinist) apply(manifest string) {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.kubectl("apply", "-f", path)
}

// classManifest is a class as the example's, of another name and type of instance.
func classManifest(name, instanceType string) string {
	return strings.NewReplacer("NAME", name, "TYPE", instanceType, "CREDENTIALS", examples.CredentialsSecret, "USERDATA", examples.UserDataSecret).Replace(`
apiVersion: machinist.dev/v1beta1
kind: MachineClass
metadata:
  name: NAME
spec:
  provider: sim
  providerSpec:
    apiVersion: sim.machinist.dev/v1beta1
    kind: SimMachine
    region: sim-1
    instanceType: TYPE
    image: sim-os-1
  credentialsRef: {name: CREDENTIALS}
  userDataRef: {name: USERDATA}
`)
}
