package machine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/safety/reachability"
)

// reach is what a test says of the target cluster.
type reach struct {
	since time.Time // of an outage, zero without one
	past  []reachability.Outage
	epoch uint64
}

func (r *reach) TargetAway() (time.Time, bool) { return r.since, !r.since.IsZero() }

func (r *reach) TargetOutages() ([]reachability.Outage, uint64) { return r.past, r.epoch }

// watched has the process know of outages.
func (w *world) watched() *reach {
	r := &reach{epoch: 1}
	w.options.Reach = r
	w.process.Reach = r
	return r
}

// away takes the target cluster away, and back brings it back.
func (w *world) away(r *reach) {
	w.targetDown, r.since = true, w.clock.Now()
	r.epoch++
}

func (w *world) back(r *reach) {
	r.past = append(r.past, reachability.Outage{From: r.since, To: w.clock.Now()})
	w.targetDown, r.since = false, time.Time{}
	r.epoch++
}

// M-53.
func TestTheDeletionStopsBeforeTheDrainWhenTheTargetIsKnownToBeAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	w.running("m")
	w.delete("m")
	w.away(r)
	// Its calls would hang, so it makes none: they would fail, and the pass with them.
	if result := w.reconcile("m"); result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
		t.Errorf("it looks again after %s", result.RequeueAfter)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetUnreachable)
	if len(w.cloud.live()) != 1 {
		t.Error("the instance was deleted")
	}
	w.step(time.Hour)
	w.wantQuiet("m")
	w.back(r)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// M-53.
func TestAMachineThatNeverHadANodeIsDeletedWithoutTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.born("m")
	w.reconcile("m")
	w.delete("m")
	w.away(r)
	w.events.take()
	result := w.reconcile("m")
	if w.get("m") == nil || result.RequeueAfter == 0 {
		t.Fatal("it goes before it is sure that the target is away")
	}
	w.step(targetPatience)
	w.untilGone("m")
	if len(w.cloud.live()) != 0 {
		t.Error("the instance is left")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may be left") {
		t.Errorf("events: %q", events)
	}
}

// M-53.
func TestAForcedDeletionGoesOnAtOnceWithoutTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	w.running("m")
	w.events.take()
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.delete("m")
	w.away(r)
	w.reconcile("m")
	if w.get("m") != nil || len(w.cloud.live()) != 0 {
		t.Error("machine or instance are left")
	}
	if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may be left") {
		t.Errorf("events: %q", events)
	}
}

// M-52.
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
		if got := last.Start.Sub(start.Time); got < moved || got > moved+2*time.Second || last.Deadline.Sub(last.Start) != length || last.Epoch != r.epoch {
			t.Errorf("%s: the drain is moved by %s and lasts %s in epoch %d, want %s, %s and %d", what, got, last.Deadline.Sub(last.Start), last.Epoch, moved, length, r.epoch)
		}
		stamp := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
		if !stamp.Time.Equal(last.Start) {
			t.Errorf("%s: written down is %s, asked for %s", what, stamp, last.Start)
		}
	}
	asks("before", 0)

	w.step(10 * time.Minute)
	w.away(r)
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
	w.away(r)
	w.step(time.Hour)
	w.back(r)
	asks("after another outage", 6*time.Hour+3*time.Second)
	w.wantQuiet("m")
}

// A drain that began after an outage is not concerned by it.
//
// M-52.
func TestAnOutageBeforeADrainDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.away(r)
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
