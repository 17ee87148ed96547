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

// An unmodified kubelet joins with a bootstrap token and a CSR. The drain respects a PodDisruptionBudget. After the
// deletion, the domain, the volumes, the seed and the Node must be gone.
func TestMachineBootsJoinsRunsPodAndIsDeleted(t *testing.T) {
	v := start(t, stack.Options{})
	started := time.Now()
	v.Apply()
	m := v.RunningAre(1, examples.SmallClass)[0]
	t.Logf("the machine is Running %s after its deployment was created", time.Since(started).Round(time.Second))
	t.Logf("kubectl get machines,nodes -o wide:\n%s", v.kubectl("get", "machines.machinist.dev,nodes", "-o", "wide"))
	v.checkNode(&m)
	v.checkResources(&m)

	web := v.runPod("web", m.Status.NodeRef.Name)
	t.Logf("kubectl logs web:\n%s", v.kubectl("logs", web.Name))
	if log := v.kubectl("logs", web.Name); !strings.Contains(log, "web runs in web") {
		t.Errorf("got the log %q", log)
	}

	t.Log("a PodDisruptionBudget that allows no disruption blocks the deletion of the machine")
	none := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none,
			Selector: &metav1.LabelSelector{MatchLabels: web.Labels}}}
	v.Create(budget)
	v.Scale(0)
	v.Await("a machine that waits for the budget", func(all []v1beta1.Machine) bool {
		if len(all) != 1 {
			return false
		}
		drained := meta.FindStatusCondition(all[0].Status.Conditions, v1beta1.ConditionDrained)
		return drained != nil && drained.Reason == v1beta1.ReasonBlockedByDisruptionBudget &&
			strings.Contains(drained.Message, "web")
	})
	err := v.Target.Get(t.Context(), client.ObjectKeyFromObject(web), web)
	if err != nil || !web.DeletionTimestamp.IsZero() {
		t.Fatalf("the pod is being deleted although the budget allows no disruption: %v", err)
	}

	t.Log("without the budget, the machine is deleted and its pod gets a signal")
	waitForLog := v.followLog(web.Name)
	if err := v.Target.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	v.Delete()
	v.WaitGone()
	if log := waitForLog(); !strings.Contains(log, "web ends by signal terminated") {
		t.Errorf("got the log %q, want its end by a signal", log)
	}
}

func TestVersionIsUpgradedByReplacement(t *testing.T) {
	skipUnlessFull(t)
	v := start(t, stack.Options{})
	v.requireNewerKubelet()
	v.Apply()
	first := v.RunningAre(1, examples.SmallClass)
	v.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = backend.Newer })
	second := v.Await("a machine with the newer version", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != first[0].UID && all[0].Status.Phase == v1beta1.MachineRunning
	})
	if got := v.nodeOf(&second[0]).Status.NodeInfo.KubeletVersion; got != backend.Newer {
		t.Errorf("got the kubelet version %s, want %s", got, backend.Newer)
	}
	v.Delete()
	v.WaitGone()
}

func TestAgentUpgradesVersionInPlace(t *testing.T) {
	skipUnlessFull(t)
	v := start(t, stack.Options{})
	v.requireNewerKubelet()
	v.backend.Agent = true
	v.Apply()
	before := v.RunningAre(1, examples.SmallClass)[0]
	v.runPod("web", before.Status.NodeRef.Name)
	v.Change(func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace}
		d.Spec.Template.Spec.Version = backend.Newer
	})
	after := v.Await("a machine with the newer version that is up to date", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].Status.Phase == v1beta1.MachineRunning &&
			meta.IsStatusConditionTrue(all[0].Status.Conditions, v1beta1.ConditionUpToDate) &&
			v.nodeOf(&all[0]).Status.NodeInfo.KubeletVersion == backend.Newer
	})[0]
	if after.UID != before.UID || after.Spec.ProviderID != before.Spec.ProviderID {
		t.Errorf("machine %s was replaced by %s", before.Name, after.Name)
	}
	if node := v.nodeOf(&after); node.Spec.Unschedulable {
		t.Errorf("the node is still cordoned: %+v", node.Spec)
	}
	v.runPod("again", after.Status.NodeRef.Name)
	v.Delete()
	v.WaitGone()
}

// No resources of the killed machine may be left.
func TestMachineWithKilledQEMUIsReplaced(t *testing.T) {
	skipUnlessFull(t)
	// With its default flags, Machinist would not replace the only machine of a fleet, because the whole fleet would be
	// unhealthy.
	v := start(t, stack.Options{ManagerArgs: []string{"--health-timeout=1m", "--health-max-unhealthy=1",
		"--health-meltdown-threshold=100"}})
	v.Apply()
	before := v.RunningAre(1, examples.SmallClass)[0]
	started := time.Now()
	if err := v.backend.Hypervisor().KillGuest(domainOf(&before)); err != nil {
		t.Fatal(err)
	}
	v.Await("a running replacement", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].UID != before.UID && all[0].Status.Phase == v1beta1.MachineRunning
	})
	t.Logf("the replacement is Running %s after QEMU was killed", time.Since(started).Round(time.Second))
	v.Delete()
	v.WaitGone()
}

// checkNode checks what the kubelet and Machinist write to a Node.
func (v *vm) checkNode(m *v1beta1.Machine) {
	v.Helper()
	node := v.nodeOf(m)
	info := node.Status.NodeInfo
	if info.KubeletVersion != backend.Version || !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") ||
		!strings.Contains(info.OSImage, "Debian") || info.BootID == "" {
		v.Errorf("node %s has unexpected system information: %+v", node.Name, info)
	}
	if node.Spec.ProviderID != m.Spec.ProviderID {
		v.Errorf("node %s has the providerID %q, but its machine has %q", node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
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
		v.Errorf("node %s has the address %q, but its machine has %v", node.Name, internal, m.Status.Addresses)
	}
}
