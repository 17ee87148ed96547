package machine

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: missing-instance-asks-machine.
func TestCheckInstanceAsksTheProviderOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "#cloud-config")
	w.createMachine("m")
	m := w.untilPhase("m", v1beta1.MachineAvailable)

	asked := func() int { return len(w.effects.since("cloud get")) }
	w.reconcile("m")
	before := asked()
	w.reconcile("m")
	if n := asked() - before; n != 0 {
		t.Fatalf("the cloud was asked %d times about a machine without pending work", n)
	}

	w.process.CheckInstance(m)
	w.reconcile("m")
	w.reconcile("m")
	if n := asked() - before; n != 1 {
		t.Errorf("the cloud was asked %d times after CheckInstance, want once", n)
	}
	if m = w.get("m"); m.Status.Phase != v1beta1.MachineAvailable {
		t.Errorf("the instance exists, but the machine is %s", m.Status.Phase)
	}

	w.cloud.Fail("Get", provider.Errorf(provider.Unavailable, "no answer"))
	w.process.CheckInstance(m)
	w.reconcile("m")
	if m = w.get("m"); m.Status.Phase != v1beta1.MachineAvailable {
		t.Errorf("the cloud did not answer, but the machine is %s", m.Status.Phase)
	}
	before = asked()
	w.reconcile("m")
	w.reconcile("m")
	if n := asked() - before; n != 1 {
		t.Errorf("the cloud was asked %d times after a failed read, want once", n)
	}

	old := m.DeepCopy()
	old.Spec.ProviderID = "fake:///another"
	before = asked()
	w.process.CheckInstance(old)
	w.reconcile("m")
	if n := asked() - before; n != 0 {
		t.Errorf("the cloud was asked %d times because of another instance", n)
	}

	w.cloud.Vanish(m.Spec.ProviderID)
	w.process.CheckInstance(m)
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("the instance is gone, but the machine is %s, failure %q", m.Status.Phase, m.Status.FailureReason)
	}
}
