package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// denying makes the cloud say of instances that they do not exist, of all of them without a name.
func (w *world) denying(ids ...string) {
	w.cloud.OnGet = func(id string) error {
		if len(ids) == 0 || id == ids[0] {
			return provider.Errorf(provider.NotFound, "no instance %s", id)
		}
		return nil
	}
}

// threeRunning brings three Machines of a class to Running, of which the Node of the first falls silent.
func threeRunning(t *testing.T) (w *world, m *v1beta1.Machine) {
	t.Helper()
	w = newWorld(t)
	w.class("small", "")
	for _, name := range []string{"m", "n", "o"} {
		w.running(name)
	}
	w.step(24 * time.Hour)
	for _, name := range []string{"m", "n", "o"} {
		w.reconcile(name)
	}
	w.effects.clear()
	w.events.take()
	return w, w.get("m")
}

// A machine does not count as vanished while the cloud denies the instances of others as well, whose Nodes are Ready.
// It does once their Nodes are silent, too: then they are gone.
//
// Rule: absence-needs-trustworthy-cloud.
func TestACloudThatDeniesAllProvesNothing(t *testing.T) {
	t.Parallel()
	w, _ := threeRunning(t)
	w.denying()
	w.nodeIs(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 60 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineUnhealthy)
	warnings := 0
	for _, e := range w.events.take() {
		if strings.Contains(e, "nothing follows from it") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("it was reported %d times, want once", warnings)
	}
	if n := len(w.effects.of("cloud get")); n > 3*60/3+5 {
		t.Errorf("%d calls in ten minutes", n)
	}

	for _, name := range []string{"n", "o"} {
		w.nodeIs(nodeNameOf(w.namespace, name), corev1.ConditionUnknown)
		w.reconcile(name)
	}
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("no instance is there, and the machine is failed for %s", m.Status.FailureReason)
	}
}

// Others of the class that the instance was made from are asked for, also where the machine names another class by now.
//
// Rule: absence-needs-trustworthy-cloud.
func TestACloudThatDeniesAllProvesNothingOfAMachineOfAnotherClass(t *testing.T) {
	t.Parallel()
	w, _ := threeRunning(t)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef = &v1beta1.LocalRef{Name: "unknown"} })
	w.denying()
	w.nodeIs(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 30 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
}

// One instance that the cloud denies is gone where it shows another one, and it is not as long as that is not known.
//
// Rules: absence-needs-trustworthy-cloud, unhealthy-node-checks-instance.
func TestACloudThatDeniesOneIsBelieved(t *testing.T) {
	t.Parallel()
	w, m := threeRunning(t)
	silent := true
	w.cloud.OnGet = func(id string) error {
		switch {
		case id == m.Spec.ProviderID:
			return provider.Errorf(provider.NotFound, "no instance %s", id)
		case silent:
			return provider.Errorf(provider.Unavailable, "no answer")
		}
		return nil
	}
	w.nodeIs(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 12 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	silent = false
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("the instance is gone, and the machine is failed for %s", m.Status.FailureReason)
	}
}

// The deletion of a machine does not end by a NotFound of a cloud that denies all.
//
// Rules: absence-needs-trustworthy-cloud, gone-is-confirmed.
func TestADeletionDoesNotBelieveACloudThatDeniesAll(t *testing.T) {
	t.Parallel()
	w, m := threeRunning(t)
	w.cloud.Vanish(m.Spec.ProviderID)
	w.denying()
	w.delete("m")
	for range 12 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	if m = w.get("m"); m == nil {
		t.Fatal("the machine is gone, and nobody knows whether its instance is")
	}
	w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonProviderUnavailable)
	w.denying(m.Spec.ProviderID)
	w.untilGone("m")
}
