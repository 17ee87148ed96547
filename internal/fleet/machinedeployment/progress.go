package machinedeployment

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

type rollout struct {
	setName                 string // name of the set of the wanted revision, or empty
	paused, frozen, failing bool
	complete                bool
	onlyCurrent             bool
	unplaced                bool // some replicas have no place in spec.placement
	// waitReason is the reason of the condition Progressing if the rollout waits without a deadline. Otherwise
	// waitReason is empty. For example, a rollout may wait for an administrator, for a disruption budget, or for an
	// upgrade of the target cluster.
	waitReason string
	// partitionReached means that all machines are available, and only those that partition keeps are of old revisions.
	partitionReached bool
	// rejection is the error with which the API server rejected the write of a set. rejectedReason is the reason of
	// the condition Progressing for this error.
	rejection      error
	rejectedReason string
	revisionReason string
	advanced       bool
	// The text waitMessage explains why the rollout does not advance. The text actions describes which sets this pass
	// scales and why. Each text may be empty.
	waitMessage, actions string
	stalledFor, deadline time.Duration
}

// progressing returns the condition Progressing, with the reasons of apps/v1. before is the previous condition or nil.
// restart is true if the rollout has just made progress, so that the time of the condition must be set to now.
func progressing(before *metav1.Condition, r rollout) (condition metav1.Condition, restart bool) {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1beta1.ConditionProgressing, Status: status, Reason: reason, Message: message}
	}
	had := func(reason string) bool { return before != nil && before.Reason == reason }
	name := fmt.Sprintf("set %s", r.setName)
	if r.setName == "" {
		name = "the wanted revision"
	}
	switch {
	case r.rejection != nil:
		return is(metav1.ConditionFalse, r.rejectedReason, sentence("cannot "+r.rejection.Error(), "")), false
	case (r.paused || r.frozen) && had(v1beta1.ReasonProgressDeadlineExceeded):
		return is(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded, sentence(
			"the rollout made no progress before it was stopped", r.waitMessage)), false
	case r.paused:
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentPaused, sentence("the deployment is paused",
				r.waitMessage)),
			false
	case r.frozen:
		return is(metav1.ConditionUnknown, v1beta1.ReasonFrozen, sentence("the deployment is frozen", r.waitMessage)), false
	case r.complete:
		return is(metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable,
			sentence(name+" has all machines, and they are available", "")), true
	case r.failing:
		return is(metav1.ConditionFalse, v1beta1.ReasonRevisionFailing,
			sentence(fmt.Sprintf("%d machines of %s in a row failed to launch, to become Ready or to be updated",
				failuresInARow, name), r.waitMessage)), false
	case r.revisionReason != "":
		return is(metav1.ConditionTrue, r.revisionReason, sentence(name+" is the new revision", r.now())), true
	case had(v1beta1.ReasonNewMachineSetAvailable) && r.onlyCurrent:
		// A change of replicas or an unhealthy machine is not a rollout.
		return is(metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable, sentence(name+" was rolled out", r.now())), true
	case isVersionWait(r.waitReason):
		return is(metav1.ConditionUnknown, r.waitReason, sentence("the rollout waits", r.waitMessage)), true
	case r.waitReason == v1beta1.ReasonWaitingForSelection, r.waitReason == v1beta1.ReasonWaitingForDisruptionBudget,
		r.waitReason == v1beta1.ReasonPartitionReached, r.waitReason == v1beta1.ReasonWaitingForPromotion:
		// The deadline counts from the end of the wait. No other field of the API contains this time, so the status is
		// Unknown during the wait, and the transition to True records the end of the wait.
		return is(metav1.ConditionUnknown, r.waitReason, sentence(name+" is the new revision", r.now())), true
	case r.waitReason != "":
		return is(metav1.ConditionTrue, r.waitReason, sentence(name+" is the new revision", r.waitMessage)), true
	case r.advanced, had(v1beta1.ReasonWaitingForDeletion), had(v1beta1.ReasonWaitingForSelection),
		had(v1beta1.ReasonWaitingForDisruptionBudget), before != nil && isVersionWait(before.Reason),
		had(v1beta1.ReasonPartitionReached), had(v1beta1.ReasonWaitingForPromotion):
		return is(metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated, sentence(name+" is progressing", r.now())), true
	case had(v1beta1.ReasonDeploymentPaused), had(v1beta1.ReasonFrozen):
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentResumed, sentence("the rollout continues", r.now())), true
	case had(v1beta1.ReasonProgressDeadlineExceeded), r.stalledFor >= r.deadline:
		return is(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded,
			sentence(fmt.Sprintf("the rollout of %s has made no progress for %s", name, r.deadline), r.now())), false
	case had(v1beta1.ReasonDeploymentResumed):
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentResumed, sentence("the rollout continues", r.now())), false
	case had(v1beta1.ReasonNewMachineSetCreated), had(v1beta1.ReasonFoundNewMachineSet):
		return is(metav1.ConditionTrue, before.Reason, sentence(name+" is the new revision", r.now())), false
	}
	return is(metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated, sentence(name+" is progressing", r.now())), false
}

// progressedAt returns when the rollout last made progress, or the creation time of the deployment. All times come from
// the API, so a restart does not change the result.
func (v *view) progressedAt(d *v1beta1.MachineDeployment, now time.Time) time.Time {
	last := d.CreationTimestamp.Time
	note := func(t time.Time) {
		if t.After(now) {
			t = now // The clock of another host is ahead.
		}
		if t.After(last) {
			last = t
		}
	}
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == v1beta1.ConditionRollingOut && c.Status == metav1.ConditionTrue, // the rollout began
			c.Type == v1beta1.ConditionProgressing && c.Status != metav1.ConditionFalse, // the rollout was stuck until then
			c.Type == v1beta1.ConditionPaused && c.Status == metav1.ConditionFalse,
			c.Type == v1beta1.ConditionFrozen && c.Status == metav1.ConditionFalse:
			note(c.LastTransitionTime.Time)
		}
	}
	if v.currentIndex >= 0 {
		note(v.sets[v.currentIndex].CreationTimestamp.Time)
	}
	for i, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			switch {
			case i == v.currentIndex:
				note(m.CreationTimestamp.Time)
				if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); c != nil {
					note(c.LastTransitionTime.Time)
				}
			case m.DeletionTimestamp != nil:
				note(m.DeletionTimestamp.Time)
			}
			if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); c != nil &&
				c.Status == metav1.ConditionTrue {
				note(c.LastTransitionTime.Time)
				minReady := time.Duration(d.Spec.MinReadySeconds) * time.Second
				if available := c.LastTransitionTime.Add(minReady); !available.After(now) {
					note(available)
				}
			}
		}
	}
	return last
}

func (r rollout) now() string {
	if r.actions != "" {
		return r.actions
	}
	return r.waitMessage
}

// deadlineIn returns the time until the progress deadline, or 0 without a deadline.
func deadlineIn(condition metav1.Condition, r rollout) time.Duration {
	if r.complete || condition.Status == metav1.ConditionFalse {
		return 0
	}
	switch condition.Reason {
	case v1beta1.ReasonNewMachineSetAvailable, v1beta1.ReasonWaitingForDeletion, v1beta1.ReasonWaitingForSelection,
		v1beta1.ReasonWaitingForDisruptionBudget, v1beta1.ReasonVersionSkew, v1beta1.ReasonVersionStepMissing,
		v1beta1.ReasonDeploymentPaused,
		v1beta1.ReasonFrozen, v1beta1.ReasonPartitionReached, v1beta1.ReasonWaitingForPromotion:
		return 0
	}
	return max(time.Millisecond, r.deadline-r.stalledFor)
}

// sentence joins a clause and its explanation into a sentence. The clause or the explanation may be empty.
func sentence(fact, explanation string) string {
	if fact == "" {
		fact, explanation = explanation, ""
	}
	if fact == "" {
		return ""
	}
	text := string(fact[0]-'a'+'A') + fact[1:]
	if fact[0] < 'a' || fact[0] > 'z' {
		text = fact
	}
	if explanation != "" {
		text += ": " + explanation
	}
	return text + "."
}
