package timeline

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// replaceInstance returns the steps in which the machine got a new instance, or nil.
func replaceInstance(o Facts) *track {
	since, replaced := replacedInstance(o)
	if !replaced || o.Machine.DeletionTimestamp != nil {
		return nil
	}
	t := begin(Replace, since)
	t.addUnknown("The creation of the machine is no longer recorded, because its instance was replaced.")
	if o.Machine.IsReplacing() {
		t.addTeardown(o)
		return t
	}
	// While Launched is False, its lastTransitionTime is the start of the new instance's creation. When Launched
	// becomes True again, this start time is overwritten.
	if c := o.condition(v1beta1.ConditionLaunched); c != nil && c.Status != metav1.ConditionTrue {
		t.addStep(c.LastTransitionTime.Time, Step{Name: "Old instance",
			WaitedFor: "the drain and the deletion of the old instance", EndedBy: "condition Launched"})
	} else {
		t.addUnknown("The time at which the old instance was deleted is no longer recorded, so its deletion is part of the first step.")
	}
	t.addSteps(o)
	return t
}

// replacedInstance reports whether the machine got a new instance, and when the replacement started.
func replacedInstance(o Facts) (since time.Time, replaced bool) {
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
