package machine

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: missing-instance-asks-machine.
func TestADoubtedInstanceIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noTarget)
	w.class("small", "#cloud-config")
	w.born("m")
	m := w.untilPhase("m", v1beta1.MachineAvailable)

	asked := func() int { return len(w.effects.of("cloud get")) }
	w.reconcile("m")
	before := asked()
	w.reconcile("m")
	if n := asked() - before; n != 0 {
		t.Fatalf("a settled machine asked %d times", n)
	}

	w.process.CheckInstance(m)
	w.reconcile("m")
	w.reconcile("m")
	if n := asked() - before; n != 1 {
		t.Errorf("asked %d times after a uncertainty, want once", n)
	}
	if m = w.get("m"); m.Status.Phase != v1beta1.MachineAvailable {
		t.Errorf("the instance is there, and the machine is %s", m.Status.Phase)
	}

	w.cloud.Fail("Get", provider.Errorf(provider.Unavailable, "no answer"))
	w.process.CheckInstance(m)
	w.reconcile("m")
	if m = w.get("m"); m.Status.Phase != v1beta1.MachineAvailable {
		t.Errorf("nobody knows, and the machine is %s", m.Status.Phase)
	}
	before = asked()
	w.reconcile("m")
	w.reconcile("m")
	if n := asked() - before; n != 1 {
		t.Errorf("asked %d times after there was no answer, want once", n)
	}

	old := m.DeepCopy()
	old.Spec.ProviderID = "fake:///another"
	before = asked()
	w.process.CheckInstance(old)
	w.reconcile("m")
	if n := asked() - before; n != 0 {
		t.Errorf("asked %d times because of another instance", n)
	}

	w.cloud.Vanish(m.Spec.ProviderID)
	w.process.CheckInstance(m)
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("the instance is gone, and the machine is %s, failure %q", m.Status.Phase, m.Status.FailureReason)
	}
}
