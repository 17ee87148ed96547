package timeline

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// replaceInstance returns the steps of the replacement of the instance under the same machine, or nil if none is known.
func replaceInstance(o Observed) *track {
	since, replaced := replacedInstance(o)
	if !replaced || o.Machine.DeletionTimestamp != nil {
		return nil
	}
	t := begin(Replace, since)
	t.addUnknown("The creation of the machine is no longer recorded, because its instance was replaced.")
	if o.Machine.Replacing() {
		t.addTeardown(o)
		return t
	}
	// The creation of the new instance starts with a transition of Launched. When Launched is True again, that time is
	// lost.
	if c := o.condition(v1beta1.ConditionLaunched); c != nil && c.Status != metav1.ConditionTrue {
		t.addStep(c.LastTransitionTime.Time, Step{Name: "Old instance",
			WaitedFor: "the drain and the deletion of the old instance", EndedBy: "condition Launched"})
	} else {
		t.addUnknown("The time at which the old instance was gone is no longer recorded: its deletion is part of the first step.")
	}
	t.addSteps(o)
	return t
}

// replacedInstance returns when the replacement of the instance under the same machine started, and whether there was
// one.
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
