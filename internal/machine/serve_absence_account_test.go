package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// inAccount creates a Machine whose instance runs in one account. It then replaces the credentials with those of
// another account.
func inAccount(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.class("small", "")
	w.setSecret("small-credentials", "account", "first")
	if m := w.running("m"); m.Status.Instance.Account != "first" {
		t.Fatalf("the recorded account is %q", m.Status.Instance.Account)
	}
	w.step(24 * time.Hour)
	w.reconcile("m")
	w.setSecret("small-credentials", "account", "second")
	w.events.take()
	return w
}

// Rule: absence-needs-the-same-account.
func TestNotFoundInAnotherAccountProvesNothing(t *testing.T) {
	t.Parallel()
	w := inAccount(t)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionUnknown)
	for range 30 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	warnings := 0
	for _, e := range w.events.take() {
		if strings.Contains(e, `are for account "second", but the instance is in account "first"`) {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("the other account was reported %d times, want once", warnings)
	}
	w.cloud.Vanish(w.get("m").Spec.ProviderID)
	w.setSecret("small-credentials", "account", "first")
	if m := w.untilPhase("m", v1beta1.MachineFailed); m.Status.FailureReason != v1beta1.FailureInstanceVanished {
		t.Errorf("the machine failed for %s", m.Status.FailureReason)
	}
}

// Rule: absence-needs-the-same-account.
func TestDeletionWithCredentialsOfAnotherAccountWaits(t *testing.T) {
	t.Parallel()
	w := inAccount(t)
	w.delete("m")
	for range 12 {
		w.reconcile("m")
		w.step(10 * time.Second)
	}
	m := w.get("m")
	if m == nil || len(w.cloud.LiveInstances()) != 1 {
		t.Fatal("the machine is gone, but its instance is not")
	}
	w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonProviderUnavailable)
	w.setSecret("small-credentials", "account", "first")
	w.untilGone("m")
	w.wantNothingLeft("m")
}
