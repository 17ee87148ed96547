package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// newWorldWithAToken has a Machine m that is to join with its token.
func newWorldWithAToken(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.born("m")
	w.reconcile("m")
	if n := len(w.tokens()); n != 1 {
		t.Fatalf("there are %d tokens for one machine", n)
	}
	return w
}

// Rule token-deleted-when-running: a machine that did not join in time cannot join any more.
func TestTheTokenOfAFailedMachineGoes(t *testing.T) {
	t.Parallel()
	w := newWorldWithAToken(t)
	// A minute more: the Machine's time began by the API server's own clock.
	w.step(v1beta1.DefaultCreationTimeout + time.Minute)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d tokens are left of a failed machine", n)
	}
}

// Somebody else may write that a machine runs before it has joined. Its token still goes when its Node becomes Ready.
//
// Rule: token-deleted-when-running.
func TestTheTokenOfAMachineThatIsSaidToHaveRunGoes(t *testing.T) {
	t.Parallel()
	w := newWorldWithAToken(t)
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Phase = v1beta1.MachineRunning })
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if n := len(w.tokens()); n != 0 {
		t.Errorf("%d tokens are left of a machine that runs", n)
	}
}

// Whoever reads the user data of an instance can join with its token, so that is good for hours, however long the
// machine may take; and for as long as it may take, it is extended.
//
// Rule: token-extended-before-expiry.
func TestATokenIsGoodForHoursAndExtendedWhileTheMachineMayJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	w.born("m", func(m *v1beta1.Machine) { m.Spec.Timeouts.Creation = &metav1.Duration{Duration: 12 * time.Hour} })
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
		t.Errorf("it is good for %s", life)
	}
	for w.clock.Now().Before(began.Add(11 * time.Hour)) {
		if left := ends().Sub(w.clock.Now()); left < 50*time.Minute {
			t.Fatalf("%s left after %s", left, w.clock.Now().Sub(began))
		}
		w.step(10 * time.Minute)
		w.reconcile("m")
	}
	if last := ends(); !last.After(first) || last.Sub(began) > 13*time.Hour+time.Minute {
		t.Errorf("in the end it is good until %s", last.Sub(began))
	}
	w.restart()
	w.reconcile("m")
	w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if left := w.tokens(); len(left) > 0 {
		t.Errorf("%d tokens are left", len(left))
	}
}

// The kubeconfig of the target may come later than the provider's process. An instance that was made before could never
// find the cluster.
//
// Rule: kubeconfig-file-awaited.
func TestNoInstanceIsMadeBeforeItIsKnownHowItReachesTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.options.Target.API
	w.options.Target.API = func() (Endpoint, error) { return Endpoint{}, errors.New("there is no such file yet") }
	w.restart()
	w.class("small", joinsWithToken)
	w.born("m")
	if _, err := w.pass("m"); err == nil || !strings.Contains(err.Error(), "there is no such file yet") {
		t.Errorf("a pass ends with %v", err)
	}
	c := w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonProvisioning)
	if !strings.Contains(c.Message, "there is no such file yet") {
		t.Errorf("the message is %q", c.Message)
	}
	if id := w.get("m").Spec.ProviderID; id != "" {
		t.Errorf("the instance %s was made", id)
	}
	w.options.Target.API = api
	w.restart()
	w.reconcile("m")
	if w.get("m").Spec.ProviderID == "" {
		t.Error("no instance was made")
	}
}
