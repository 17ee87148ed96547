package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// denying makes the cloud answer NotFound for the given IDs, or for all instances if there are none.
func (w *world) denying(ids ...string) {
	w.cloud.OnGet = func(id string) error {
		if len(ids) == 0 || id == ids[0] {
			return provider.Errorf(provider.NotFound, "no instance %s", id)
		}
		return nil
	}
}

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

// When the kubelets of the witnesses no longer report, the machine counts as vanished.
//
// Rule: absence-needs-trustworthy-cloud.
func TestNotFoundForAllInstancesProvesNothing(t *testing.T) {
	t.Parallel()
	w, _ := threeRunning(t)
	w.denying()
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 60 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineUnhealthy)
	warnings := 0
	for _, e := range w.events.take() {
		if strings.Contains(e, "its answer proves nothing") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("the doubt was reported %d times, want once", warnings)
	}
	if n := len(w.effects.since("cloud get")); n > 3*60/3+5 {
		t.Errorf("%d calls in ten minutes", n)
	}

	for _, name := range []string{"n", "o"} {
		w.setNodeReady(nodeNameOf(w.namespace, name), corev1.ConditionUnknown)
		w.reconcile(name)
	}
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("no instance exists, but the machine failed for %s", m.Status.FailureReason)
	}
}

// The machine's spec names another class.
//
// Rule: absence-needs-trustworthy-cloud.
func TestWitnessesAreOfTheClassOfTheInstance(t *testing.T) {
	t.Parallel()
	w, _ := threeRunning(t)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef = &v1beta1.LocalRef{Name: "unknown"} })
	w.denying()
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 30 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
}

// If reads of the witnesses fail, the instance does not count as absent.
//
// Rules: absence-needs-trustworthy-cloud, unhealthy-node-checks-instance.
func TestNotFoundForOneInstanceIsBelieved(t *testing.T) {
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
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 12 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	silent = false
	if m = w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("the instance is gone, but the machine failed for %s", m.Status.FailureReason)
	}
}

// Rules: absence-needs-trustworthy-cloud, gone-is-confirmed.
func TestDeletionWaitsWhileTheCloudFindsNoInstanceAtAll(t *testing.T) {
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
		t.Fatal("the machine is gone, but it is not known whether its instance is")
	}
	w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonProviderUnavailable)
	w.denying(m.Spec.ProviderID)
	w.untilGone("m")
}
