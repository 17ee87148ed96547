package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
)

type reach struct {
	since   time.Time // of the current outage, zero if there is none
	refuses bool      // the target cluster refuses the credentials
	past    []reachability.Outage
	epoch   uint64
}

func (r *reach) TargetUnreachable() (time.Time, bool) { return r.since, !r.since.IsZero() }

func (r *reach) TargetRefuses() bool { return r.refuses }

func (r *reach) TargetOutages() ([]reachability.Outage, uint64) { return r.past, r.epoch }

func (w *world) watched() *reach {
	r := &reach{epoch: 1}
	w.options.Reachability = r
	w.process.Reachability = r
	return r
}

// unreachable starts an outage of the target cluster. The method back ends the outage.
func (w *world) unreachable(r *reach) {
	w.targetDown, r.since = true, w.clock.Now()
	r.epoch++
}

func (w *world) back(r *reach) {
	r.past = append(r.past, reachability.Outage{From: r.since, To: w.clock.Now()})
	w.targetDown, r.since = false, time.Time{}
	r.epoch++
}

// Rule: deletion-waits-for-target.
func TestTheDeletionStopsBeforeTheDrainWhenTheTargetIsKnownToBeUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	w.running("m")
	w.delete("m")
	w.unreachable(r)
	if result := w.reconcile("m"); result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
		t.Errorf("the machine is requeued after %s", result.RequeueAfter)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetUnreachable)
	if len(w.cloud.LiveInstances()) != 1 {
		t.Error("the instance was deleted")
	}
	w.step(time.Hour)
	w.wantQuiet("m")
	if n := w.unanswered.Load(); n > 0 {
		t.Errorf("the process made %d calls, which might hang", n)
	}
	w.back(r)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule: deletion-waits-for-target.
func TestAMachineThatNeverHadANodeIsDeletedWithoutTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.delete("m")
	w.unreachable(r)
	w.events.take()
	result := w.reconcile("m")
	if w.get("m") == nil || result.RequeueAfter == 0 {
		t.Fatal("the machine is gone before the target has been unreachable long enough")
	}
	w.step(targetPatience)
	w.untilGone("m")
	if len(w.cloud.LiveInstances()) != 0 {
		t.Error("the instance remains")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may remain in it") {
		t.Errorf("events: %q", events)
	}
}

// Rule: deletion-waits-for-target.
func TestForceDeleteContinuesAtOnceWithoutTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	w.running("m")
	w.events.take()
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.delete("m")
	w.unreachable(r)
	w.reconcile("m")
	if w.get("m") != nil || len(w.cloud.LiveInstances()) != 0 {
		t.Error("the machine or the instance remains")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may remain in it") {
		t.Errorf("events: %q", events)
	}
}

// Rule: outage-extends-drain.
func TestOutageIsExcludedFromADrainOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	m := w.running("m")
	drainer := &recordingDrainer{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.reconcile("m")
	start := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
	length := w.get("m").Spec.Timeouts.DrainOrDefault()
	wantDrain := func(what string, moved time.Duration) {
		t.Helper()
		w.reconcile("m")
		last := drainer.requests[len(drainer.requests)-1]
		if got := last.Start.Sub(start.Time); got < moved || got > moved+2*time.Second ||
			last.Deadline.Sub(last.Start) != length || last.Epoch != r.epoch {
			t.Errorf("%s: the drain is moved by %s and lasts %s in epoch %d, want %s, %s and %d", what, got,
				last.Deadline.Sub(last.Start), last.Epoch, moved, length, r.epoch)
		}
		stamp := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
		if !stamp.Time.Equal(last.Start) {
			t.Errorf("%s: recorded is %s, requested %s", what, stamp, last.Start)
		}
	}
	wantDrain("before", 0)

	w.step(10 * time.Minute)
	w.unreachable(r)
	w.reconcile("m")
	w.step(5 * time.Hour)
	w.reconcile("m")
	w.back(r)
	w.effects.clear()
	wantDrain("after an outage", 5*time.Hour)
	want(t, "effects", w.effects.since(), "API Machine patch status")
	w.wantQuiet("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrainExtended, "True", v1beta1.ReasonTargetUnreachable)

	// For another process, the same outage lasted a little longer.
	w.restart()
	drainer = &recordingDrainer{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.step(time.Minute)
	r.past[0].To = r.past[0].To.Add(3 * time.Second)
	wantDrain("by another process", 5*time.Hour+3*time.Second)

	w.step(time.Minute)
	w.unreachable(r)
	w.step(time.Hour)
	w.back(r)
	wantDrain("after another outage", 6*time.Hour+3*time.Second)
	w.wantQuiet("m")
}

// Rule: outage-extends-drain.
func TestAnOutageBeforeADrainDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.unreachable(r)
	w.step(time.Hour)
	w.back(r)
	w.step(2 * time.Second)
	w.delete("m")
	w.reconcile("m")
	w.wantQuiet("m")
	stamp := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
	if began := metav1.NewTime(w.clock.Now().Truncate(time.Second)); !stamp.Equal(&began) {
		t.Errorf("the drain began at %s, want %s", stamp, began)
	}
}

// Rule join-timeout-fails-machine: no machine can join during an outage of the target cluster, but it can join
// afterwards.
func TestOutageIsExcludedFromTheTimeToJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.step(5 * time.Minute)
	w.unreachable(r)
	w.targetDown = false // Nodes are read from a cache, which is still available.
	w.step(2 * v1beta1.DefaultCreationTimeout)
	if result := w.reconcile("m"); result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
		t.Errorf("during the outage the machine is requeued after %s", result.RequeueAfter)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	w.back(r)
	result := w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	// The result is not exact. The creation timestamp comes from the API server's clock, and the durations of outages
	// are whole seconds.
	within(t, "the wait after the outage", result.RequeueAfter, v1beta1.DefaultCreationTimeout-7*time.Minute,
		v1beta1.DefaultCreationTimeout-4*time.Minute)
	expires, err := time.Parse(time.RFC3339, string(w.tokens()[0].Data["expiration"]))
	if left := expires.Sub(w.clock.Now()); err != nil || left < result.RequeueAfter {
		t.Errorf("the token is valid for %s, but the machine has %s to join (%v)", left, result.RequeueAfter, err)
	}
	w.step(result.RequeueAfter)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
}

// Rule join-timeout-fails-machine: a process does not know which outages occurred before it became the leader.
func TestTimeToJoinStartsWhenTheProcessBeginsToLead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched()
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.step(2 * v1beta1.DefaultCreationTimeout)
	w.restart()
	result := w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	within(t, "the wait of a new process", result.RequeueAfter, 0, v1beta1.DefaultCreationTimeout)
	w.step(v1beta1.DefaultCreationTimeout)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
}

// Rule: join-clock-bounded-over-leaders.
func TestTimeToJoinEndsWithAnySeriesOfLeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched()
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	leaders := 0
	for ; w.get("m").Status.Phase != v1beta1.MachineFailed && leaders < 20; leaders++ {
		w.step(v1beta1.DefaultCreationTimeout / 4)
		w.restart()
		w.reconcile("m")
		// Each leader leads for a quarter of the timeout, and reconciles the Machine.
		w.step(v1beta1.DefaultCreationTimeout / 4)
		w.reconcile("m")
	}
	if leaders < 5 || leaders > 7 {
		t.Errorf("the machine is %s after %d leaders, want it to fail after three timeouts", w.get("m").Status.Phase, leaders)
	}
}

func (w *world) refusing() {
	w.refuse = func(_ string, o runtime.Object) error {
		switch o.(type) {
		case *corev1.Node, *corev1.NodeList, *corev1.Pod, *corev1.PodList:
			return apierrors.NewUnauthorized("Unauthorized")
		}
		return nil
	}
}

// Rules refused-credentials-are-outage, failed-read-proves-nothing: machines may join and pods may start while this
// process cannot see them.
func TestDeletionWaitsWhileTheTargetRefusesTheCredentials(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		known, joined bool
	}{
		"before the cluster counts as unreachable": {false, false},
		"when the cluster counts as unreachable":   {true, false},
		"of a machine that has joined":             {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.watched()
			w.class("small", "")
			if tc.joined {
				w.running("m")
			} else {
				w.createMachine("m")
				w.reconcile("m")
			}
			w.refusing()
			if tc.known {
				r.since, r.refuses = w.clock.Now(), true
			}
			if !tc.joined {
				w.node("m", true)
			}
			w.delete("m")
			for range 4 {
				if _, err := w.pass("m"); err == nil != tc.known || w.get("m") == nil || len(w.cloud.LiveInstances()) != 1 {
					t.Fatalf("the pass ends with %v; the machine is %v", err, w.get("m"))
				}
				w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetCredentialsRefused)
				w.step(targetPatience)
			}
			if tc.known {
				w.wantQuiet("m")
			}
			w.refuse, r.since, r.refuses = nil, time.Time{}, false
			w.podOn(nodeNameOf(w.namespace, "m"))
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
			w.refusing()
			w.annotate("m", v1beta1.AnnotationForceDelete)
			r.since, r.refuses = w.clock.Now(), true
			w.reconcile("m")
			if w.get("m") != nil || len(w.cloud.LiveInstances()) != 0 {
				t.Error("the machine or the instance remains")
			}
		})
	}
}

// Rule failed-read-proves-nothing: only the answer NotFound from the API server proves that there is no Node.
func TestAReadThatFailsDoesNotProveThatAMachineNeverJoined(t *testing.T) {
	t.Parallel()
	for name, rejection := range map[string]error{
		"forbidden": apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no")),
		"too many":  apierrors.NewTooManyRequests("later", 1),
		"internal":  apierrors.NewInternalError(errors.New("etcd is slow")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.watched()
			w.class("small", "")
			w.createMachine("m")
			w.reconcile("m")
			w.node("m", true)
			w.refuse = func(_ string, o runtime.Object) error {
				switch o.(type) {
				case *corev1.Node, *corev1.NodeList:
					return rejection
				}
				return nil
			}
			w.delete("m")
			for range 4 {
				if _, err := w.pass("m"); err == nil || w.get("m") == nil || len(w.cloud.LiveInstances()) != 1 {
					t.Fatalf("the pass ends with %v; the machine is %v", err, w.get("m"))
				}
				w.step(targetPatience)
			}
			w.refuse = nil
			w.reconcile("m")
			w.wantNothingLeft("m")
		})
	}
}

// Rule deletion-waits-for-target: the backoff after several errors must not last longer than the outage.
func TestPassThatFailsInAnOutageIsRetriedSoonAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.unreachable(r)
	for range 3 {
		result, err := w.pass("m")
		if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
			t.Fatalf("during the outage the machine is requeued after %s, error %v", result.RequeueAfter, err)
		}
		w.step(result.RequeueAfter)
	}
	if n := len(w.cloud.LiveInstances()); n > 0 {
		t.Fatalf("%d instances that cannot join were created", n)
	}
	w.back(r)
	w.targetDown = true // This failure is not part of the outage.
	if _, err := w.pass("m"); err == nil {
		t.Error("the pass reports no error")
	}
	w.targetDown = false
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
}
