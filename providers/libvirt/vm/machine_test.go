//go:build e2e

package vm

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/providers/libvirt/backend"
)

// A machine boots, and its kubelet, which nobody here wrote, joins by a bootstrap token and a CSR. A pod runs there and
// its log can be read. When the machine goes, a PodDisruptionBudget holds as long as it says, and then domain, volumes,
// seed and Node are gone.
func TestAMachineBootsJoinsRunsAPodAndGoes(t *testing.T) {
	v := start(t, stack.Options{})
	begun := time.Now()
	v.Apply()
	m := v.RunningAre(1, examples.SmallClass)[0]
	t.Logf("a machine is Running %s after it was declared", time.Since(begun).Round(time.Second))
	t.Logf("kubectl get machines,nodes -o wide:\n%s", v.kubectl("get", "machines.machinist.dev,nodes", "-o", "wide"))
	v.isARealNode(&m)
	v.hasItsParts(&m)

	web := v.pod("web", m.Status.NodeRef.Name)
	t.Logf("kubectl logs web:\n%s", v.kubectl("logs", web.Name))
	if log := v.kubectl("logs", web.Name); !strings.Contains(log, "web runs in web") {
		t.Errorf("the pod's log is %q", log)
	}

	t.Log("a PodDisruptionBudget that allows no disruption keeps the machine")
	none := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none,
			Selector: &metav1.LabelSelector{MatchLabels: web.Labels}}}
	v.Create(budget)
	v.Scale(0)
	v.Await("the machine that waits for the budget", func(all []v1beta1.Machine) bool {
		if len(all) != 1 {
			return false
		}
		drained := meta.FindStatusCondition(all[0].Status.Conditions, v1beta1.ConditionDrained)
		return drained != nil && drained.Reason == v1beta1.ReasonBlockedByDisruptionBudget &&
			strings.Contains(drained.Message, "web")
	})
	err := v.Target.Get(t.Context(), client.ObjectKeyFromObject(web), web)
	if err != nil || !web.DeletionTimestamp.IsZero() {
		t.Fatalf("the pod is going although the budget allows no disruption: %v", err)
	}

	t.Log("without the budget it goes, and its pod is asked to end")
	ends := v.follow(web.Name)
	if err := v.Target.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	v.Delete()
	v.Gone()
	if log := ends(); !strings.Contains(log, "web ends by signal terminated") {
		t.Errorf("the pod's log ends with %q", log)
	}
}

// Another version is another machine by default, and no pod is without a node meanwhile.
func TestAVersionIsUpgradedByReplacement(t *testing.T) {
	onlyFull(t)
	v := start(t, stack.Options{})
	v.needsNewer()
	v.Apply()
	first := v.RunningAre(1, examples.SmallClass)
	v.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = backend.Newer })
	second := v.Await("a machine of the newer version", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != first[0].UID && all[0].Status.Phase == v1beta1.MachineRunning
	})
	if got := v.node(&second[0]).Status.NodeInfo.KubeletVersion; got != backend.Newer {
		t.Errorf("the kubelet has the version %s", got)
	}
	v.Delete()
	v.Gone()
}

// With an agent on the node, the version changes on the same machine, with a drain before.
func TestAnAgentUpgradesAVersionInPlace(t *testing.T) {
	onlyFull(t)
	v := start(t, stack.Options{})
	v.needsNewer()
	v.backend.Agent = true
	v.Apply()
	before := v.RunningAre(1, examples.SmallClass)[0]
	v.pod("web", before.Status.NodeRef.Name)
	v.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.Version = backend.Newer
	})
	after := v.Await("the machine with the newer version", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].Status.Phase == v1beta1.MachineRunning &&
			meta.IsStatusConditionTrue(all[0].Status.Conditions, v1beta1.ConditionUpToDate) &&
			v.node(&all[0]).Status.NodeInfo.KubeletVersion == backend.Newer
	})[0]
	if after.UID != before.UID || after.Spec.ProviderID != before.Spec.ProviderID {
		t.Errorf("machine %s was replaced by %s", before.Name, after.Name)
	}
	if node := v.node(&after); node.Spec.Unschedulable {
		t.Errorf("the node stayed cordoned: %+v", node.Spec)
	}
	v.pod("again", after.Status.NodeRef.Name)
	v.Delete()
	v.Gone()
}

// A machine whose QEMU is gone is replaced, and nothing of it is left.
func TestAMachineWhoseQEMUWasKilledIsReplaced(t *testing.T) {
	onlyFull(t)
	// A fleet of one machine is broken as a whole, which by default is no reason to replace it.
	v := start(t, stack.Options{ManagerArgs: []string{"--health-timeout=1m", "--health-max-unhealthy=1",
		"--health-meltdown-threshold=100"}})
	v.Apply()
	before := v.RunningAre(1, examples.SmallClass)[0]
	begun := time.Now()
	if err := v.backend.Hypervisor().KillGuest(domainOf(&before)); err != nil {
		t.Fatal(err)
	}
	v.Await("another machine in its place", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != before.UID && all[0].Status.Phase == v1beta1.MachineRunning
	})
	t.Logf("another machine is Running %s after QEMU was killed", time.Since(begun).Round(time.Second))
	v.Delete()
	v.Gone()
}

// isARealNode holds a Node to what a kubelet reports and what Machinist puts on it.
func (v *vm) isARealNode(m *v1beta1.Machine) {
	v.Helper()
	node := v.node(m)
	info := node.Status.NodeInfo
	if info.KubeletVersion != backend.Version || !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") ||
		!strings.Contains(info.OSImage, "Debian") || info.BootID == "" {
		v.Errorf("node %s is %+v", node.Name, info)
	}
	if node.Spec.ProviderID != m.Spec.ProviderID {
		v.Errorf("node %s has the providerID %q, its machine %q", node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1beta1.NodeTaintUninitialized {
			v.Errorf("node %s still has the taint %s", node.Name, taint.Key)
		}
	}
	var internal string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			internal = a.Address
		}
	}
	found := false
	for _, a := range m.Status.Addresses {
		found = found || a.Type == corev1.NodeInternalIP && a.Address == internal
	}
	if !found {
		v.Errorf("node %s has the address %q, its machine %v", node.Name, internal, m.Status.Addresses)
	}
}
