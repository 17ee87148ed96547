package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// newWorldWithAToken returns a world with a Machine m whose instance has not joined with its bootstrap token yet.
func newWorldWithAToken(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	if n := len(w.tokens()); n != 1 {
		t.Fatalf("there are %d tokens for one machine", n)
	}
	return w
}

// Rule token-deleted-when-running: a machine that did not join in time can no longer join.
func TestTokenOfAFailedMachineIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorldWithAToken(t)
	// The creation timestamp comes from the API server's clock, so the step is a minute longer than the timeout.
	w.step(v1beta1.DefaultCreationTimeout + time.Minute)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("a failed machine has %d tokens left", n)
	}
}

// Another client may write to the status that a machine runs, although the machine has not joined yet.
//
// Rule: token-deleted-when-running.
func TestTokenIsDeletedIfAForgedPhaseClaimsThatTheMachineRan(t *testing.T) {
	t.Parallel()
	w := newWorldWithAToken(t)
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Phase = v1beta1.MachineRunning })
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("a running machine has %d tokens left", n)
	}
}

// Anyone who can read the user data of an instance can join with its token. The token is therefore valid for only some
// hours, even if the machine has more time to join.
//
// Rule: token-extended-before-expiry.
func TestTokenIsExtendedWhileTheMachineMayJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.Timeouts.Creation = &metav1.Duration{Duration: 12 * time.Hour} })
	ends := func() time.Time {
		t.Helper()
		tokens := w.tokens()
		if len(tokens) != 1 {
			t.Fatalf("%d tokens", len(tokens))
		}
		at, err := time.Parse(time.RFC3339, string(tokens[0].Data["expiration"]))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	began := w.clock.Now()
	w.reconcile("m")
	first := ends()
	if life := first.Sub(began); life > 5*time.Hour {
		t.Errorf("the token is valid for %s", life)
	}
	for w.clock.Now().Before(began.Add(11 * time.Hour)) {
		if left := ends().Sub(w.clock.Now()); left < 50*time.Minute {
			t.Fatalf("the token is valid for another %s after %s", left, w.clock.Now().Sub(began))
		}
		w.step(10 * time.Minute)
		w.reconcile("m")
	}
	if last := ends(); !last.After(first) || last.Sub(began) > 13*time.Hour+time.Minute {
		t.Errorf("in the end the token is valid until %s", last.Sub(began))
	}
	w.restart()
	w.reconcile("m")
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if left := w.tokens(); len(left) > 0 {
		t.Errorf("%d tokens remain", len(left))
	}
}

// The kubeconfig of the target cluster may be created after the provider's process has started. An instance that was
// created earlier could never find the cluster.
//
// Rule: kubeconfig-file-awaited.
func TestNoInstanceIsCreatedBeforeTheTargetEndpointIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.options.Target.API
	w.options.Target.API = func() (Endpoint, error) { return Endpoint{}, errors.New("the file does not exist yet") }
	w.restart()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	if _, err := w.pass("m"); err == nil || !strings.Contains(err.Error(), "the file does not exist yet") {
		t.Errorf("the pass ends with %v", err)
	}
	c := w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonProvisioning)
	if !strings.Contains(c.Message, "the file does not exist yet") {
		t.Errorf("the message is %q", c.Message)
	}
	if id := w.get("m").Spec.ProviderID; id != "" {
		t.Errorf("instance %s was created", id)
	}
	w.options.Target.API = api
	w.restart()
	w.reconcile("m")
	if w.get("m").Spec.ProviderID == "" {
		t.Error("no instance was created")
	}
}
