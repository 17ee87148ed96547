package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// M-22: a machine that did not join in time cannot join any more.
func TestTheTokenOfAFailedMachineGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.born("m")
	w.reconcile("m")
	if n := len(w.tokens()); n != 1 {
		t.Fatalf("there are %d tokens for one machine", n)
	}
	// A minute more: the Machine's time began by the API server's own clock.
	w.step(v1beta1.DefaultCreationTimeout + time.Minute)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d tokens are left of a failed machine", n)
	}
}
