//go:build e2e

package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// An unmodified kubelet continues with the same Node after its machine was stopped and started, and after a guest
// that hangs was rebooted. The machine is not replaced.
//
// Rules: power-stopped, power-running, reboot-first, reboot-silent.
func TestMachineIsStoppedStartedAndRebooted(t *testing.T) {
	skipUnlessFull(t)
	// With its default flags, Machinist would not repair the only machine of a fleet, because the whole fleet would
	// be unhealthy.
	// On a busy computer, a process may lose a Lease with the default duration.
	lease := []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s"}
	v := start(t, stack.Options{ProviderArgs: lease, ManagerArgs: append([]string{"--health-timeout=1m",
		"--health-max-unhealthy=1", "--health-meltdown-threshold=100", "--health-remediation=Reboot"}, lease...)})
	v.Apply()
	before := v.RunningAre(1, examples.SmallClass)[0]
	node := v.nodeOf(&before)
	boots := map[string]bool{node.Status.NodeInfo.BootID: true}
	pod := v.runPod("web", node.Name)

	t.Log("stop")
	started := time.Now()
	v.setPowerState(&before, v1beta1.PowerStopped)
	v.Await("a stopped machine", func(all []v1beta1.Machine) bool {
		return len(all) == 1 && all[0].Status.Phase == v1beta1.MachineStopped &&
			meta.IsStatusConditionTrue(all[0].Status.Conditions, v1beta1.ConditionPowerStateReached)
	})
	t.Logf("the machine is stopped after %s", time.Since(started).Round(time.Second))
	v.wantDomainState(&before, "shut off")
	if err := v.Target.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is left after the stop: %v", err)
	}

	t.Log("start")
	started = time.Now()
	v.setPowerState(&before, v1beta1.PowerRunning)
	v.awaitBoot(&before, boots)
	t.Logf("the machine is Ready %s after its start", time.Since(started).Round(time.Second))
	v.runPod("again", node.Name)

	t.Log("the guest hangs: its processors stop, and it ignores requests to shut down")
	started = time.Now()
	if _, err := v.backend.Hypervisor().Virsh(t.Context(), "suspend", domainOf(&before)); err != nil {
		t.Fatal(err)
	}
	after := v.awaitBoot(&before, boots)
	t.Logf("the machine is Ready %s after the guest hung", time.Since(started).Round(time.Second))
	if r := after.Status.Reboot; r == nil || r.State != v1beta1.RebootSucceeded || !r.Unresponsive {
		t.Errorf("got the reboot %+v, want a successful one of a silent machine", r)
	}
	v.checkResources(&after)
	v.Delete()
	v.WaitGone()
}

func (v *vm) setPowerState(m *v1beta1.Machine, state v1beta1.PowerState) {
	v.Helper()
	v.kubectl("patch", "machines.machinist.dev", m.Name, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"powerState":%q}}`, state))
}

func (v *vm) wantDomainState(m *v1beta1.Machine, want string) {
	v.Helper()
	got, err := v.backend.Hypervisor().Virsh(v.Context(), "domstate", domainOf(m))
	if err != nil || strings.TrimSpace(got) != want {
		v.Errorf("the domain is %q: %v, want %q", got, err, want)
	}
}

// awaitBoot waits until the Node is Ready with a boot ID that is not in the argument boots, and adds it. The
// machine, its instance and its Node must be the same as before.
func (v *vm) awaitBoot(before *v1beta1.Machine, boots map[string]bool) v1beta1.Machine {
	v.Helper()
	after := v.Await("a machine that has booted again", func(all []v1beta1.Machine) bool {
		if len(all) != 1 || all[0].UID != before.UID {
			v.Fatalf("machine %s was replaced: %d machines", before.Name, len(all))
		}
		return all[0].Status.Phase == v1beta1.MachineRunning && all[0].Status.Power == nil &&
			meta.IsStatusConditionTrue(all[0].Status.Conditions, v1beta1.ConditionReady) &&
			!boots[v.nodeOf(&all[0]).Status.NodeInfo.BootID]
	})[0]
	node := v.nodeOf(&after)
	boots[node.Status.NodeInfo.BootID] = true
	if after.Spec.ProviderID != before.Spec.ProviderID || node.UID != before.Status.NodeRef.UID {
		v.Errorf("got instance %s and the node UID %s, before %s and %s", after.Spec.ProviderID, node.UID,
			before.Spec.ProviderID, before.Status.NodeRef.UID)
	}
	if len(node.Spec.Taints) > 0 || node.Spec.Unschedulable {
		v.Errorf("the node is not in service: %+v", node.Spec)
	}
	return after
}
