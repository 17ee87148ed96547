package timeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// deleteMachine returns the steps of the machine's deletion or replacement, or nil. A replacement starts when the
// machine is marked for it.
func deleteMachine(o Facts) *track {
	deleted := o.Machine.DeletionTimestamp
	t := o.replaceMachine()
	switch {
	case deleted == nil:
		return t
	case t == nil:
		t = begin(Delete, deleted.Time)
	}
	t.addTeardown(o)
	return t
}

func (o Facts) replaceMachine() *track {
	var t *track
	var turn Step
	c := o.condition(v1beta1.ConditionRemediationRequested)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue && !machinestate.IsExternalRemediation(c.Reason) &&
		c.Reason != v1beta1.ReasonRebootRequested:
		t = begin(Replace, c.LastTransitionTime.Time)
		turn = blockedStep("Turn", c)
		turn.WaitedFor = "the set to replace the machine, within spec.remediation.maxInFlight"
	case o.Newest != nil && o.Deployment != nil:
		var known bool
		if t, known = o.beginRollout(); !known {
			t.addUnknown("The start of the rollout is no longer recorded: the set of the newest revision was created at %s.",
				formatTime(o.Newest.CreationTimestamp.Time))
		}
		turn = Step{Name: "Turn", WaitedFor: "the rollout to reach the machine, within maxSurge and maxUnavailable"}
		if c := rollingOut(o.Deployment); c != nil {
			turn.Reason, turn.Message = c.Reason, c.Message
		}
	default:
		return nil
	}
	deleted := o.Machine.DeletionTimestamp
	if deleted == nil {
		t.endWithOngoing(turn)
		return t
	}
	turn.Reason, turn.Message, turn.EndedBy = "", "", "metadata.deletionTimestamp"
	if !t.addStep(deleted.Time, turn) {
		return nil
	}
	return t
}

// beginRollout returns a track that starts with the rollout. If the start time of the rollout is unknown, the track
// starts with the creation of the newest set.
func (o Facts) beginRollout() (t *track, known bool) {
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

func (t *track) addTeardown(o Facts) {
	m := o.Machine
	if !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer) {
		t.endWithOngoing(Step{Name: "Finalizers", WaitedFor: "other controllers to remove their finalizers: " +
			strings.Join(m.Finalizers, ", ")})
		t.addUnknown("Machinist has finished the deletion. Only the event Deleted shows when the deletion of the instance was complete.")
		return
	}
	reported := o.condition(v1beta1.ConditionDeleting)
	if c := o.condition(v1beta1.ConditionUpToDate); reported == nil && m.IsReplacing() && c != nil {
		reported = c
	}
	if reported == nil {
		reported = &metav1.Condition{Type: v1beta1.ConditionDeleting, Reason: v1beta1.ReasonDeletionStarted}
	}
	if !t.addDrain(o, reported) {
		return
	}
	if c := o.condition(v1beta1.ConditionVolumesDetached); c != nil {
		switch {
		case c.Status == metav1.ConditionTrue:
			t.addStep(c.LastTransitionTime.Time, finishedStep("Volumes", "the volumes on the Node to be detached", c))
		case c.Reason == v1beta1.ReasonSkipped:
			t.addStep(t.end(), finishedStep("Volumes", "", c))
		default:
			t.endWithOngoing(blockedStep("Volumes", c))
			return
		}
	}
	t.addInstanceDeletion(o, reported)
}

// addDrain adds the steps until the end of the drain, and reports whether the drain has ended.
func (t *track) addDrain(o Facts, reported *metav1.Condition) bool {
	c := o.condition(v1beta1.ConditionDrained)
	switch {
	case c == nil && o.deletionRequested() == nil && beforeDrain(reported.Reason):
		t.endWithOngoing(blockedStep("Before the drain", reported))
		return false
	case c == nil:
		return true
	case c.Status != metav1.ConditionTrue:
		if c.LastTransitionTime.After(t.end()) {
			t.addStep(c.LastTransitionTime.Time, Step{Name: "Before the drain",
				WaitedFor: "pre-drain hooks, and Machinist to find and cordon the Node", EndedBy: "condition Drained"})
		}
		t.endWithOngoing(blockedStep("Drain", c))
		return false
	}
	if !t.addStep(c.LastTransitionTime.Time, finishedStep("Drain", "pre-drain hooks, and the pods on the Node to be gone", c)) {
		t.addUnknown("The Node was drained before the previous step ended, at %s.", formatTime(c.LastTransitionTime.Time))
	}
	return true
}

// beforeDrain returns true if the condition Deleting with this reason means that the drain is not complete.
func beforeDrain(reason string) bool {
	switch reason {
	case v1beta1.ReasonWaitingForPreTerminateHook, v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling,
		v1beta1.ReasonDeleteError, v1beta1.ReasonInstanceDeleted, v1beta1.ReasonCredentialsNotFound,
		v1beta1.ReasonCredentialsRefused, v1beta1.ReasonProviderUnavailable, v1beta1.ReasonReplacing:
		return false
	}
	return true
}

// deletionRequested returns the time of the latest request to the cloud to delete the instance, or nil.
func (o Facts) deletionRequested() *time.Time {
	last := o.Machine.Status.LastOperation
	if last == nil || last.Type != v1beta1.OperationDelete || last.LastUpdateTime == nil {
		return nil
	}
	return &last.LastUpdateTime.Time
}

func (t *track) addInstanceDeletion(o Facts, reported *metav1.Condition) {
	last, asked := o.Machine.Status.LastOperation, o.deletionRequested()
	if asked == nil {
		t.endWithOngoing(blockedStep("Cloud call", reported))
		return
	}
	if last.Code != "" {
		s := blockedStep("Cloud call", reported)
		s.Message = fmt.Sprintf("%s (Delete failed %d times in a row. The last error code is %s.)", last.Description,
			last.Attempts, last.Code)
		t.endWithOngoing(s)
		return
	}
	t.addStep(*asked, Step{Name: "Cloud call", WaitedFor: "pre-terminate hooks, and the cloud to accept the deletion",
		EndedBy: "status.lastOperation"})
	t.endWithOngoing(blockedStep("Deletion", reported))
}

func finishedStep(name, waitedFor string, c *metav1.Condition) Step {
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
