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

// Users change rollouts halfway. Each rollout replaces 6 machines, 2 at a time, until pods with a PodDisruptionBudget
// block it.
//
// Rules: scale-during-rollout-in-proportion, failing-revision-stops, rollback-reuses-set,
// pause-stops-rollout-not-scaling, outdated-node-taints.
func TestRolloutsAreChangedHalfway(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(6, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(2)),
				MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}
	})
	m.awaitRunning(6)

	t.Log("pause: no machine is replaced, the fleet still follows replicas, and the rollout can continue")
	m.rollHalfway("pause", examples.LargeClass)
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"paused":true}}`)
	m.kubectl("wait", "md/workers", "--for=condition=Paused", "--timeout=60s")
	m.liftBudget("pause")
	m.awaitClasses("the old machines that were being deleted are gone, and the others remain",
		map[string]int{examples.SmallClass: 4, examples.LargeClass: 4})
	m.kubectl("scale", "md/workers", "--replicas=8")
	// 8 replicas and a surge of 2 are divided in proportion.
	m.awaitClasses("both revisions grow", map[string]int{examples.SmallClass: 5, examples.LargeClass: 5})
	contains(t, m.kubectl("describe", "md/workers"), "DeploymentPaused")
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"paused":false}}`)
	m.awaitClasses("the rollout continued", map[string]int{examples.LargeClass: 8})
	m.awaitRolledOut(map[string]int{})

	t.Log("scale: down and up during a rollout")
	m.kubectl("scale", "md/workers", "--replicas=6")
	m.awaitRunning(6)
	m.rollHalfway("scale", examples.SmallClass)
	m.kubectl("scale", "md/workers", "--replicas=3")
	m.await("fewer machines", func(machines []v1beta1.Machine) bool { return living(machines) <= 5 })
	m.kubectl("scale", "md/workers", "--replicas=9")
	m.await("more machines", func(machines []v1beta1.Machine) bool { return living(machines) > 8 })
	m.liftBudget("scale")
	m.awaitClasses("all of the new class", map[string]int{examples.SmallClass: 9})
	m.awaitRolledOut(map[string]int{})

	t.Log("undo: the remaining old machines are kept, and their nodes are no longer marked")
	m.kubectl("scale", "md/workers", "--replicas=6")
	m.awaitRunning(6)
	m.rollHalfway("undo", examples.LargeClass)
	var left []types.UID
	for _, machine := range m.await("machines", func([]v1beta1.Machine) bool { return true }) {
		if machine.Spec.ClassRef.Name == examples.SmallClass && machine.DeletionTimestamp.IsZero() {
			left = append(left, machine.UID)
		}
	}
	m.rollTo(examples.SmallClass)
	m.liftBudget("undo")
	m.awaitClasses("all of the old class", map[string]int{examples.SmallClass: 6})
	m.awaitRolledOut(map[string]int{})
	kept := 0
	for _, machine := range m.awaitRunning(6) {
		if slices.Contains(left, machine.UID) {
			kept++
		}
	}
	if len(left) != 4 || kept != 4 {
		t.Errorf("got %d remaining machines of the old class, %d of them kept; want 4 and 4", len(left), kept)
	}

	t.Log("a class that the cloud refuses: the rollout stops automatically, and continues with a valid class")
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
		t.Errorf("got %d machines of the old class while the new class is refused, want 6", serving)
	}
	m.apply(classManifest("fixed", "medium"))
	m.rollTo("fixed")
	m.awaitClasses("all of the fixed class", map[string]int{"fixed": 6})
	m.awaitRolledOut(map[string]int{})

	m.kubectl("delete", "md/workers", "--wait=false")
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
	m.wantNoTwins()
}

func (m *machinist) rollTo(class string) {
	m.t.Helper()
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"`+
		class+`"}}}}}`)
}

// rollHalfway rolls out another class to 6 running machines until the pods of an app block the rollout. Then 2 old
// machines are being deleted, 4 old machines remain, and 4 new machines run.
func (m *machinist) rollHalfway(app, class string) {
	m.t.Helper()
	machines := m.awaitRunning(6)
	var nodes []string
	for i := range machines {
		nodes = append(nodes, machines[i].Status.NodeRef.Name)
	}
	m.protectedPods(app, nodes...)
	old := machines[0].Spec.ClassRef.Name
	m.rollTo(class)
	m.awaitClasses("halfway", map[string]int{old: 4, class: 4, "deleting": 2})
	m.awaitMarks(map[string]int{old: 4})
}

func (m *machinist) awaitClasses(what string, want map[string]int) {
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
			n["deleting"]++
		case machines[i].Status.Phase == v1beta1.MachineRunning:
			n[machines[i].Spec.ClassRef.Name]++
		default:
			n["creating"]++
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

func (m *machinist) awaitRolledOut(marked map[string]int) {
	m.t.Helper()
	m.kubectl("wait", "md/workers", "--for=condition=RollingOut=False", "--timeout=60s")
	m.awaitMarks(marked)
}

func (m *machinist) awaitMarks(want map[string]int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the numbers of marked nodes are %v", want), func() (bool, string) {
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
				return false, fmt.Sprintf("node %s: tainted %v, scale-down disabled %v", node.Name, tainted, preserved)
			}
			if tainted {
				have[machine.Spec.ClassRef.Name]++
			}
		}
		return fmt.Sprint(have) == fmt.Sprint(want), fmt.Sprint(have)
	})
}

func (m *machinist) apply(manifest string) {
	m.t.Helper()
	path := filepath.Join(m.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.kubectl("apply", "-f", path)
}

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
