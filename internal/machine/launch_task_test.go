package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// While the cloud creates the instance, reads do not show it. The machine waits, and no second instance is created,
// even if the process is restarted after every pass.
//
// Rule: creation-that-shows-nothing.
func TestCreationThatShowsNothingForMinutes(t *testing.T) {
	t.Parallel()
	hides := func(w *world) {
		began := w.clock.Now()
		w.cloud.OnGet = func(id string) error {
			if id != "" && w.clock.Now().Sub(began) < w.cloud.CreateTask {
				return provider.Errorf(provider.NotFound, "no instance %s", id)
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		restarts bool
		change   func(*world)
	}{
		"one process":                         {},
		"a new process after every pass":      {restarts: true},
		"Get does not find the task":          {change: hides},
		"Get does not find it, new processes": {restarts: true, change: hides},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			w.cloud.CreateTask, w.cloud.Settle = 5*time.Minute, 10*time.Second
			w.class("small", "")
			m := w.createMachine("m")
			if tc.change != nil {
				tc.change(w)
			}
			began := w.clock.Now()
			for w.clock.Now().Sub(began) < w.cloud.CreateTask {
				again := w.reconcile("m").RequeueAfter
				now := w.get("m")
				if now.Status.FailureReason != "" || now.CreateHandle() == "" {
					t.Fatalf("after %s: failure %q, handle %q", w.clock.Now().Sub(began), now.Status.FailureReason,
						now.CreateHandle())
				}
				if again <= 0 || again > 30*time.Second {
					t.Fatalf("the creation is checked again after %s", again)
				}
				if tc.restarts {
					w.restart()
				} else {
					w.process.CheckInstance(now) // Lists do not show the instance either.
				}
				w.step(again)
			}
			done := w.untilPhase("m", v1beta1.MachineRunning)
			if done.CreateHandle() != "" {
				t.Errorf("the handle %q is kept although the instance runs", done.CreateHandle())
			}
			if n := w.cloud.CreatedCount(m.UID); n != 1 {
				t.Errorf("%d instances were created", n)
			}
			w.wantRest("m")
		})
	}
}

// If the status with the handle was never written, Create is repeated with the same token.
//
// Rule: creation-that-shows-nothing.
func TestLostCreateHandleCreatesNoSecondInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.cloud.CreateTask, w.cloud.Settle = 5*time.Minute, 10*time.Second
	w.class("small", "")
	m := w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"), EffectDelay: time.Second})
	w.reconcile("m")
	w.step(2 * time.Second)
	w.restart()
	w.untilPhase("m", v1beta1.MachineRunning)
	if n := w.cloud.CreatedCount(m.UID); n != 1 {
		t.Errorf("%d instances were created", n)
	}
}

// The creation may fail after minutes. The code decides what happens, as after a Create that fails.
//
// Rules: creation-that-shows-nothing, late-lack-of-capacity.
func TestCreationThatFailsAfterMinutes(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, code provider.Code) (*world, *v1beta1.Machine) {
		w := newWorld(t, joining)
		w.cloud.CreateTask, w.cloud.Settle = time.Hour, 10*time.Second
		w.class("small", "")
		m := w.createMachine("m")
		w.reconcile("m")
		for _, in := range w.cloud.LiveInstances() {
			w.cloud.Vanish(in.ProviderID)
		}
		w.cloud.Fail("Get", &provider.Error{Code: provider.NotFound, CreateCode: code, Message: "the clone failed"})
		w.cloud.CreateTask = 0
		w.step(30 * time.Second)
		w.reconcile("m")
		return w, m
	}
	t.Run("no capacity", func(t *testing.T) {
		t.Parallel()
		w, m := start(t, provider.ResourceExhausted)
		w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonInsufficientResources)
		w.untilPhase("m", v1beta1.MachineRunning)
		if n := w.cloud.CreatedCount(m.UID); n != 2 {
			t.Errorf("%d instances were created, want a second one after the first failed", n)
		}
	})
	t.Run("another reason", func(t *testing.T) {
		t.Parallel()
		w, _ := start(t, provider.InvalidArgument)
		if m := w.get("m"); m.Status.FailureReason != v1beta1.FailureCreateError {
			t.Errorf("the failure reason is %q", m.Status.FailureReason)
		}
	})
}

// A creation that never ends is given up at the end of the creation timeout.
//
// Rules: creation-that-shows-nothing, join-timeout-fails-machine.
func TestCreationThatNeverEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.CreateTask, w.cloud.Settle = 24*time.Hour, 10*time.Second
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.step(v1beta1.DefaultCreationTimeout - time.Second)
	w.reconcile("m")
	if m := w.get("m"); m.Status.FailureReason != "" {
		t.Errorf("the machine failed before the timeout: %s", m.Status.FailureMessage)
	}
	w.step(2 * time.Second)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	w.delete("m")
	w.untilGone("m")
	if n := len(w.cloud.LiveInstances()); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
