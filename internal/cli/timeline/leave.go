package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// leave is the way out of a machine: from its deletion, or from the moment in which it was found to be one to replace.
func leave(o Observed) *track {
	deleted := o.Machine.DeletionTimestamp
	t := o.toReplace()
	switch {
	case deleted == nil:
		return t
	case t == nil:
		t = begin(Delete, deleted.Time)
	}
	t.takeDown(o)
	return t
}

// toReplace begins the replacement of the whole machine, nil if nobody wants that.
func (o Observed) toReplace() *track {
	var t *track
	var turn Step
	c := o.condition(v1beta1.ConditionRemediationRequested)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue && c.Reason != v1beta1.ReasonExternalRemediation:
		t = begin(Replace, c.LastTransitionTime.Time)
		turn = blocked("Turn", c)
		turn.WaitedFor = "its set to replace it, within the budget for replacements"
	case o.Newest != nil && o.Deployment != nil:
		var known bool
		if t, known = o.beginRollout(); !known {
			t.notKnown("When the rollout began is not recorded any more: the set of the newest revision was made at %s.",
				stamp(o.Newest.CreationTimestamp.Time))
		}
		turn = Step{Name: "Turn", WaitedFor: "its turn in the rollout, within maxSurge and maxUnavailable"}
		if c := rollingOut(o.Deployment); c != nil {
			turn.Reason, turn.Message = c.Reason, c.Message
		}
	default:
		return nil
	}
	deleted := o.Machine.DeletionTimestamp
	if deleted == nil {
		t.goesOn(turn)
		return t
	}
	turn.Reason, turn.Message, turn.EndedBy = "", "", "metadata.deletionTimestamp"
	if !t.until(deleted.Time, turn) {
		return nil // It was being deleted before, for another reason.
	}
	return t
}

// beginRollout begins with the rollout, or else with the newest set.
func (o Observed) beginRollout() (t *track, known bool) {
	if c := rollingOut(o.Deployment); c != nil && c.Status == metav1.ConditionTrue {
		return begin(Replace, later(c.LastTransitionTime.Time, o.Machine.CreationTimestamp.Time)), true
	}
	return begin(Replace, later(o.Newest.CreationTimestamp.Time, o.Machine.CreationTimestamp.Time)), false
}

func rollingOut(d *v1beta1.MachineDeployment) *metav1.Condition {
	for i := range d.Status.Conditions {
		if c := &d.Status.Conditions[i]; c.Type == v1beta1.ConditionRollingOut {
			return c
		}
	}
	return nil
}

// takeDown lays the steps from here until the instance and all that belongs to it is gone.
func (t *track) takeDown(o Observed) {
	m := o.Machine
	if !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer) {
		t.goesOn(Step{Name: "Finalizers", WaitedFor: "those who protect it by a finalizer: " +
			strings.Join(m.Finalizers, ", ")})
		t.notKnown("Machinist is done with it. When its instance was gone, only the event Deleted reports.")
		return
	}
	reported := o.condition(v1beta1.ConditionDeleting)
	if c := o.condition(v1beta1.ConditionUpToDate); reported == nil && m.Replacing() && c != nil {
		reported = c
	}
	if reported == nil {
		reported = &metav1.Condition{Type: v1beta1.ConditionDeleting, Reason: v1beta1.ReasonDeletionStarted}
	}
	if !t.drained(o, reported) {
		return
	}
	if c := o.condition(v1beta1.ConditionVolumesDetached); c != nil {
		switch {
		case c.Status == metav1.ConditionTrue:
			t.until(c.LastTransitionTime.Time, done("Volumes", "the volumes of the node to be detached", c))
		case c.Reason == v1beta1.ReasonSkipped:
			t.until(t.at(), done("Volumes", "", c))
		default:
			t.goesOn(blocked("Volumes", c))
			return
		}
	}
	t.removed(o, reported)
}

// drained lays the steps until the drain is over, and reports whether it is.
func (t *track) drained(o Observed, reported *metav1.Condition) bool {
	c := o.condition(v1beta1.ConditionDrained)
	switch {
	case c == nil && o.asked() == nil && beforeDrain(reported.Reason):
		t.goesOn(blocked("Before the drain", reported))
		return false
	case c == nil:
		return true // There is no Node to drain.
	case c.Status != metav1.ConditionTrue:
		if c.LastTransitionTime.After(t.at()) {
			t.until(c.LastTransitionTime.Time, Step{Name: "Before the drain",
				WaitedFor: "hooks, and the node to be found and cordoned", EndedBy: "condition Drained"})
		}
		t.goesOn(blocked("Drain", c))
		return false
	}
	if !t.until(c.LastTransitionTime.Time, done("Drain", "hooks before the drain, and the pods of the node to leave", c)) {
		t.notKnown("The node was drained before, at %s.", stamp(c.LastTransitionTime.Time))
	}
	return true
}

// beforeDrain reports whether a deletion that waits for this has not begun to drain.
func beforeDrain(reason string) bool {
	switch reason {
	case v1beta1.ReasonWaitingForPreTerminateHook, v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling,
		v1beta1.ReasonDeleteError, v1beta1.ReasonInstanceDeleted, v1beta1.ReasonCredentialsNotFound,
		v1beta1.ReasonCredentialsRefused, v1beta1.ReasonProviderUnavailable, v1beta1.ReasonReplacing:
		return false
	}
	return true
}

// asked returns when the cloud was last asked to remove the instance, nil if it was not.
func (o Observed) asked() *time.Time {
	last := o.Machine.Status.LastOperation
	if last == nil || last.Type != v1beta1.OperationDelete || last.LastUpdateTime == nil {
		return nil
	}
	return &last.LastUpdateTime.Time
}

// removed lays the steps in which the cloud removes the instance, and what comes after it.
func (t *track) removed(o Observed, reported *metav1.Condition) {
	last, asked := o.Machine.Status.LastOperation, o.asked()
	if asked == nil {
		t.goesOn(blocked("Cloud call", reported))
		return
	}
	if last.Code != "" {
		s := blocked("Cloud call", reported)
		s.Message = fmt.Sprintf("%s (Delete failed %d times in a row, with %s.)", last.Description, last.Attempts, last.Code)
		t.goesOn(s)
		return
	}
	t.until(*asked, Step{Name: "Cloud call", WaitedFor: "hooks before the removal, and the cloud to accept it",
		EndedBy: "status.lastOperation"})
	t.goesOn(blocked("Removal", reported))
}

// done is a step that a condition ended.
func done(name, waitedFor string, c *metav1.Condition) Step {
	s := Step{Name: name, WaitedFor: waitedFor, EndedBy: "condition " + c.Type, Reason: c.Reason, Message: c.Message}
	if c.Reason == v1beta1.ReasonSkipped || c.Reason == v1beta1.ReasonVolumeDetachTimeout {
		s.WaitedFor = why.MeaningOf(c.Type, c.Reason).Explanation
	}
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
