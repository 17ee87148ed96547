package machine

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func throttledFor(d time.Duration) error {
	err := provider.Errorf(provider.Throttled, "too many requests")
	err.RetryAfter = d
	return err
}

func (w *world) wantDeletes(want int) {
	w.t.Helper()
	if got := w.cloud.DeleteCount(); got != want {
		w.t.Errorf("Delete was called %d times, want %d", got, want)
	}
}

// Each event of the Node or the Machine triggers a pass.
//
// Rule: one-try-per-backoff.
func TestARefusedDeleteIsNotRepeatedByEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		wait time.Duration
	}{
		"throttled": {throttledFor(time.Minute), time.Minute},
		"internal":  {provider.Errorf(provider.Internal, "no"), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m")
			w.cloud.Fail("Delete", tc.err, tc.err)
			w.delete("m")
			wait := w.reconcile("m").RequeueAfter
			within(t, "the wait", wait, tc.wait, tc.wait*5/4)
			m := w.get("m")
			if next := m.Status.LastOperation.NextTryTime; next == nil {
				t.Error("lastOperation does not say when the next try is due")
			} else {
				within(t, "the next try", next.Sub(w.clock.Now()), wait-2*time.Second, wait+2*time.Second)
			}
			for range 5 {
				w.step(wait / 10)
				w.wantQuiet("m")
			}
			w.wantDeletes(1)
			w.step(wait)
			again := w.reconcile("m").RequeueAfter
			w.wantDeletes(2)
			if got := w.get("m").Status.LastOperation.Attempts; got != 2 {
				t.Errorf("attempts = %d after two failures", got)
			}
			w.step(again)
			w.reconcile("m")
			w.wantNothingLeft("m")
		})
	}
}

// Without a recorded instance, a deletion begins with a lookup.
//
// Rule: one-try-per-backoff.
func TestARefusedLookupOfADeletionIsNotRepeatedByEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.cloud.Fail("Create", provider.Errorf(provider.Unavailable, "no"))
	w.reconcile("m")
	w.delete("m")
	w.cloud.Fail("Get", throttledFor(time.Minute))
	w.reconcile("m")
	w.effects.clear()
	for range 5 {
		w.step(time.Second)
		w.wantQuiet("m")
	}
	want(t, "driver calls before the time that the cloud named", w.effects.calls())
}

// Rule: one-try-per-backoff.
func TestARefusedDeleteOfAReplacedInstanceIsNotRepeatedByEvents(t *testing.T) {
	t.Parallel()
	w, _ := changed(t, &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateNeedsReplacement}}})
	w.cloud.Fail("Delete", throttledFor(time.Minute))
	wait := w.reconcile("m").RequeueAfter
	for range 5 {
		w.step(time.Second)
		w.wantQuiet("m")
	}
	w.wantDeletes(1)
	w.step(wait)
	w.reconcile("m")
	w.wantDeletes(2)
}

// The credentials change, or an administrator requests a retry.
//
// Rules: one-try-per-backoff, retry-annotation-tries-now.
func TestChangedInputsRetryARefusedDeleteAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	denied := provider.Errorf(provider.Unauthenticated, "no")
	w.cloud.Fail("Delete", denied, denied)
	w.delete("m")
	w.reconcile("m")
	w.setSecret("small-credentials", "token", "hunter3")
	w.reconcile("m")
	w.wantDeletes(2)
	w.wantQuiet("m")
	w.wantDeletes(2)
	w.annotate("m", v1beta1.AnnotationRetry)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

func (w *world) queueOf() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	w.t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	w.t.Cleanup(queue.ShutDown)
	if err := w.process.trigger.Source().Start(w.t.Context(), queue); err != nil {
		w.t.Fatal(err)
	}
	return queue
}

// After a success for another machine, a failed call is repeated soon. After each failure, this happens only once. If
// the calls of only one machine fail, each success for another machine would otherwise repeat these calls.
//
// Rule: recovered-cloud-tried-soon.
func TestRecoveredCloudIsTriedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.running("other")
	w.running("third")
	queue := w.queueOf()
	failure := provider.Errorf(provider.Unavailable, "no")
	for range 12 {
		w.cloud.Fail("Delete", failure)
	}
	w.delete("m")
	wait := time.Duration(0)
	for range 11 {
		w.step(wait)
		wait = w.reconcile("m").RequeueAfter
	}
	within(t, "the wait", wait, 5*time.Minute, 7*time.Minute)
	w.wantDeletes(11)

	w.createMachine("new")
	w.step(time.Second)
	w.reconcile("new") // The cloud creates an instance.
	w.wantEnqueued(queue, "m")
	wait = w.reconcile("m").RequeueAfter
	w.wantDeletes(12)
	within(t, "the wait after the early try", wait, 5*time.Minute, 7*time.Minute)

	for _, name := range []string{"other", "third"} {
		w.delete(name)
		w.reconcile(name)
		if w.get(name) != nil {
			t.Errorf("machine %s is not deleted", name)
		}
	}
	if queue.Len() != 0 {
		t.Error("the second success triggered a machine whose early try had failed")
	}
	w.step(wait)
	w.reconcile("m")
	if w.get("m") != nil {
		t.Error("the machine is not deleted at the regular time of its next try")
	}
}

// Rule: recovered-cloud-tried-soon.
func TestRecoveredCloudIsNotCalledBeforeTheTimeItNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	queue := w.queueOf()
	w.createMachine("m")
	w.cloud.Fail("Create", throttledFor(time.Minute))
	w.reconcile("m")
	w.createMachine("other")
	w.reconcile("other")
	if queue.Len() != 0 {
		t.Error("a machine was triggered before the time that the cloud named")
	}
	w.wantQuiet("m")

	w.createMachine("failing")
	w.cloud.Fail("Create", provider.Errorf(provider.PermissionDenied, "no"))
	w.reconcile("failing")
	w.createMachine("fourth")
	w.reconcile("fourth")
	w.wantEnqueued(queue, "failing")
	w.reconcile("failing")
	w.wantPhase(w.get("failing"), v1beta1.MachineProvisioned)
}
