package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// The time of the machine is over before the next attempt is due. The MachineSet will delete the machine soon, and
// would also delete a new instance.
//
// Rule: no-launch-before-replacement.
func TestNoInstanceIsCreatedBeforeTheReplacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", ofASet)
	w.cloud.Fail("Create", &provider.Error{Code: provider.Throttled, Message: "slow down",
		RetryAfter: v1beta1.DefaultCreationTimeout + 3*time.Second})
	w.reconcile("m")
	w.step(v1beta1.DefaultCreationTimeout + 4*time.Second)
	w.effects.clear()
	again := w.reconcile("m").RequeueAfter
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	want(t, "driver calls", w.effects.calls())
	if again <= 0 || again > replacementGrace {
		t.Errorf("checks again after %s", again)
	}
	// If the MachineSet does not replace the machine, the launch continues.
	w.step(replacementGrace)
	w.reconcile("m")
	if w.get("m").Spec.ProviderID == "" {
		t.Error("a machine that is not replaced is never launched again")
	}
}
