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

// reach is what a test says of the target cluster.
type reach struct {
	since   time.Time // of an outage, zero without one
	refuses bool      // the credentials
	past    []reachability.Outage
	epoch   uint64
}

func (r *reach) TargetUnreachable() (time.Time, bool) { return r.since, !r.since.IsZero() }

func (r *reach) TargetRefuses() bool { return r.refuses }

func (r *reach) TargetOutages() ([]reachability.Outage, uint64) { return r.past, r.epoch }

// watched has the process know of outages.
func (w *world) watched() *reach {
	r := &reach{epoch: 1}
	w.options.Reach = r
	w.process.Reach = r
	return r
}

// unreachable takes the target cluster unreachable, and back brings it back.
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
		t.Errorf("it checks again after %s", result.RequeueAfter)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetUnreachable)
	if len(w.cloud.Live()) != 1 {
		t.Error("the instance was deleted")
	}
	w.step(time.Hour)
	w.wantQuiet("m")
	if n := w.unanswered.Load(); n > 0 {
		t.Errorf("it made %d calls, which might hang", n)
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
	w.born("m")
	w.reconcile("m")
	w.delete("m")
	w.unreachable(r)
	w.events.take()
	result := w.reconcile("m")
	if w.get("m") == nil || result.RequeueAfter == 0 {
		t.Fatal("it goes before it is sure that the target is unreachable")
	}
	w.step(targetPatience)
	w.untilGone("m")
	if len(w.cloud.Live()) != 0 {
		t.Error("the instance is left")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may be left") {
		t.Errorf("events: %q", events)
	}
}

// Rule: deletion-waits-for-target.
func TestAForcedDeletionGoesOnAtOnceWithoutTheTarget(t *testing.T) {
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
	if w.get("m") != nil || len(w.cloud.Live()) != 0 {
		t.Error("machine or instance are left")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may be left") {
		t.Errorf("events: %q", events)
	}
}

// Rule: outage-extends-drain.
func TestTheTimeOfAnOutageIsLeftOutOfADrainOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	m := w.running("m")
	drainer := &asked{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.reconcile("m")
	start := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
	length := w.get("m").Spec.Timeouts.DrainOrDefault()
	asks := func(what string, moved time.Duration) {
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
			t.Errorf("%s: written down is %s, asked for %s", what, stamp, last.Start)
		}
	}
	asks("before", 0)

	w.step(10 * time.Minute)
	w.unreachable(r)
	w.reconcile("m")
	w.step(5 * time.Hour)
	w.reconcile("m")
	w.back(r)
	w.effects.clear()
	asks("after an outage", 5*time.Hour)
	want(t, "what is done", w.effects.of(), "API Machine patch status")
	w.wantQuiet("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrainExtended, "True", v1beta1.ReasonTargetUnreachable)

	// Another process has seen the same outage a little longer.
	w.restart()
	drainer = &asked{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.step(time.Minute)
	r.past[0].To = r.past[0].To.Add(3 * time.Second)
	asks("by another process", 5*time.Hour+3*time.Second)

	w.step(time.Minute)
	w.unreachable(r)
	w.step(time.Hour)
	w.back(r)
	asks("after another outage", 6*time.Hour+3*time.Second)
	w.wantQuiet("m")
}

// A drain that began after an outage is not concerned by it.
//
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

// Rule join-timeout-fails-machine: nobody can join a cluster that is unreachable, and who had begun to still can when
// it is back.
func TestTheTimeOfAnOutageIsLeftOutOfTheTimeToJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.born("m")
	w.reconcile("m")
	w.step(5 * time.Minute)
	w.unreachable(r)
	w.targetDown = false // Nodes are read from a cache, which is still there.
	w.step(2 * v1beta1.DefaultCreationTimeout)
	if result := w.reconcile("m"); result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
		t.Errorf("during the outage it checks again after %s", result.RequeueAfter)
	}
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	w.back(r)
	result := w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	// The Machine's time began by the API server's own clock, and outages count in whole seconds.
	within(t, "the wait after the outage", result.RequeueAfter, v1beta1.DefaultCreationTimeout-7*time.Minute,
		v1beta1.DefaultCreationTimeout-4*time.Minute)
	expires, err := time.Parse(time.RFC3339, string(w.tokens()[0].Data["expiration"]))
	if left := expires.Sub(w.clock.Now()); err != nil || left < result.RequeueAfter {
		t.Errorf("the token is good for %s, and there are %s to join (%v)", left, result.RequeueAfter, err)
	}
	w.step(result.RequeueAfter)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
}

// Rule join-timeout-fails-machine: a process does not know of the outages before it began to lead.
func TestTheTimeToJoinBeginsWithTheLeadAtTheEarliest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched()
	w.class("small", "")
	w.born("m")
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

// Rule join-clock-bounded-over-leaders: leaders that do not last would give it its time anew for ever.
func TestTheTimeToJoinHasAnEndWhoeverLeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched()
	w.class("small", "")
	w.born("m")
	w.reconcile("m")
	lives := 0
	for ; w.get("m").Status.Phase != v1beta1.MachineFailed && lives < 20; lives++ {
		w.step(v1beta1.DefaultCreationTimeout / 4)
		w.restart()
		w.reconcile("m")
		// Each of them leads for longer than it takes to see who is there.
		w.step(v1beta1.DefaultCreationTimeout / 4)
		w.reconcile("m")
	}
	if lives < 5 || lives > 7 {
		t.Errorf("the machine is %s after %d lives of leaders, want three timeouts", w.get("m").Status.Phase, lives)
	}
}

// refusing has the target cluster refuse the credentials of the process.
func (w *world) refusing() {
	w.refuse = func(_ string, o runtime.Object) error {
		switch o.(type) {
		case *corev1.Node, *corev1.NodeList, *corev1.Pod, *corev1.PodList:
			return apierrors.NewUnauthorized("Unauthorized")
		}
		return nil
	}
}

// Rules refused-credentials-are-outage, failed-read-proves-nothing: where the credentials are refused, machines join,
// pods start on them, and nobody sees it.
func TestADeletionIsNotConcludedWhileTheTargetRefusesTheCredentials(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		known, joined bool
	}{
		"before the process counts it as away": {false, false},
		"when it counts as unreachable":        {true, false},
		"of a machine that has joined":         {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.watched()
			w.class("small", "")
			if tc.joined {
				w.running("m")
			} else {
				w.born("m")
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
				if _, err := w.pass("m"); err == nil != tc.known || w.get("m") == nil || len(w.cloud.Live()) != 1 {
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
			// Who insists is not held up.
			w.refusing()
			w.annotate("m", v1beta1.AnnotationForceDelete)
			r.since, r.refuses = w.clock.Now(), true
			w.reconcile("m")
			if w.get("m") != nil || len(w.cloud.Live()) != 0 {
				t.Error("machine or instance are left")
			}
		})
	}
}

// Rule failed-read-proves-nothing: only the API server's word that there is no Node proves that there is none.
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
			w.born("m")
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
				if _, err := w.pass("m"); err == nil || w.get("m") == nil || len(w.cloud.Live()) != 1 {
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

// Rule deletion-waits-for-target: a row of errors would have it check again long after the outage.
func TestWhatFailsForAnOutageGoesOnSoonAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.born("m")
	w.unreachable(r)
	for range 3 {
		result, err := w.pass("m")
		if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
			t.Fatalf("during the outage it checks again after %s, error %v", result.RequeueAfter, err)
		}
		w.step(result.RequeueAfter)
	}
	if n := len(w.cloud.Live()); n > 0 {
		t.Fatalf("%d instances were made that cannot join", n)
	}
	w.back(r)
	w.targetDown = true // Not the outage any more.
	if _, err := w.pass("m"); err == nil {
		t.Error("an error is no error")
	}
	w.targetDown = false
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
}
