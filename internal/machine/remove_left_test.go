package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: remaining-parts-named.
func TestRemainingPartsAreReportedAfterMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.cloud.Shutdown, w.cloud.RemainingParts = time.Hour, "volume v-1: it has snapshots"
	w.delete("m")
	message := func() string {
		w.reconcile("m")
		c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionDeleting)
		if c == nil || c.Reason != v1beta1.ReasonInstanceTerminating {
			t.Fatalf("the condition is %+v", c)
		}
		return c.Message
	}
	names := func(text string) bool { return strings.Contains(text, w.cloud.RemainingParts) }
	began := w.clock.Now()
	for w.clock.Since(began) < leftNamedAfter {
		if got := message(); names(got) {
			t.Fatalf("after %s: %q", w.clock.Since(began), got)
		}
		w.step(time.Minute)
	}
	w.events.take()
	for range 3 {
		if got := message(); !names(got) {
			t.Errorf("after %s: %q", w.clock.Since(began), got)
		}
		w.step(time.Minute)
	}
	reported := slices.DeleteFunc(w.events.take(), func(e string) bool { return !names(e) })
	if len(reported) != 1 {
		t.Errorf("the remaining parts were reported %d times, want once: %q", len(reported), reported)
	}
	w.step(time.Hour)
	w.untilGone("m")
}
