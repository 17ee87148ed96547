package timeline

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// replaceInstance is the replacement of the instance under the same machine, nil if there was none that is known of.
func replaceInstance(o Observed) *track {
	since, replaced := replacedInstance(o)
	if !replaced || o.Machine.DeletionTimestamp != nil {
		return nil
	}
	t := begin(Replace, since)
	t.notKnown("How the machine came up first is not recorded any more: its instance was replaced.")
	if o.Machine.Replacing() {
		t.takeDown(o)
		return t
	}
	// The new attempt begins with the transition of Launched; once that is True, its begin is not recorded.
	if c := o.condition(v1beta1.ConditionLaunched); c != nil && c.Status != metav1.ConditionTrue {
		t.until(c.LastTransitionTime.Time, Step{Name: "Old instance",
			WaitedFor: "the drain and the removal of the old instance", EndedBy: "condition Launched"})
	} else {
		t.notKnown("When the old instance was gone is not recorded any more: its removal is part of the first step.")
	}
	t.comeUp(o)
	return t
}

// replacedInstance returns since when the machine's instance is, or was, being replaced under the same machine.
func replacedInstance(o Observed) (since time.Time, replaced bool) {
	c := o.condition(v1beta1.ConditionUpToDate)
	if c != nil && c.Status != metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacing {
		return c.LastTransitionTime.Time, true
	}
	if o.Machine.LaunchAttempt() < 2 {
		return time.Time{}, false
	}
	for _, e := range o.Events {
		if e.Reason == v1beta1.ReasonReplacing && e.Last.After(since) {
			since = e.Last
		}
	}
	return since, !since.IsZero()
}
