package machinedeployment

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// rollout is the state that the condition Progressing depends on.
type rollout struct {
	set string // name of the set of the wanted revision, or empty
	// paused, frozen, failing say what stops it.
	paused, frozen, failing bool
	// complete says that all machines are of the wanted revision and available.
	complete bool
	// onlyWanted says that no machine of another revision exists.
	onlyWanted bool
	// forPeople is the reason if nothing happens until people delete or select machines, until a disruption budget has
	// room, or until the target cluster supports the version, or empty.
	forPeople string
	// rejected says which set the API server did not accept and why, rejectedReason is the reason of the condition.
	rejected       error
	rejectedReason string
	// began is the reason if a new revision began in this pass, or empty.
	began string
	// advanced says that the numbers of machines came closer to the end.
	advanced bool
	// waiting says what the rollout waits for, doing what this pass scales.
	waiting, doing string
	// still is how long there was no progress, deadline how long there may be none.
	still, deadline time.Duration
}

// progressing decides the condition Progressing with the reasons of apps/v1, given the one before (nil at first).
// restart says that there is progress now, even if the API has no time for it yet.
func progressing(before *metav1.Condition, r rollout) (condition metav1.Condition, restart bool) {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1beta1.ConditionProgressing, Status: status, Reason: reason, Message: message}
	}
	had := func(reason string) bool { return before != nil && before.Reason == reason }
	name := fmt.Sprintf("set %s", r.set)
	if r.set == "" {
		name = "the wanted revision"
	}
	switch {
	case r.rejected != nil:
		return is(metav1.ConditionFalse, r.rejectedReason, sentence("cannot "+r.rejected.Error(), "")), false
	case (r.paused || r.frozen) && had(v1beta1.ReasonProgressDeadlineExceeded):
		return is(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded, sentence("no progress before it was stopped",
			r.waiting)), false
	case r.paused:
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentPaused, sentence("the deployment is paused", r.waiting)),
			false
	case r.frozen:
		return is(metav1.ConditionUnknown, v1beta1.ReasonFrozen, sentence("the deployment is frozen", r.waiting)), false
	case r.complete:
		return is(metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable,
			sentence(name+" has all machines, and they are available", "")), true
	case r.failing:
		return is(metav1.ConditionFalse, v1beta1.ReasonRevisionFailing,
			sentence(fmt.Sprintf("%d machines of %s in a row failed to launch, to become Ready or to be updated",
				failuresInARow, name), r.waiting)), false
	case r.began != "":
		return is(metav1.ConditionTrue, r.began, sentence(name+" is the new revision", r.now())), true
	case had(v1beta1.ReasonNewMachineSetAvailable) && r.onlyWanted:
		// A change of replicas or an unhealthy machine is not a rollout.
		return is(metav1.ConditionTrue, v1beta1.ReasonNewMachineSetAvailable, sentence(name+" was rolled out", r.now())), true
	case r.forPeople == v1beta1.ReasonVersionSkew:
		return is(metav1.ConditionUnknown, r.forPeople, sentence("the rollout waits", r.waiting)), true
	case r.forPeople == v1beta1.ReasonWaitingForSelection, r.forPeople == v1beta1.ReasonWaitingForDisruptionBudget:
		// The API has no time of the selection, or of the room, from which the deadline could run. The condition is Unknown
		// meanwhile, so it has the time when it becomes True again.
		return is(metav1.ConditionUnknown, r.forPeople, sentence(name+" is the new revision", r.waiting)), true
	case r.forPeople != "":
		return is(metav1.ConditionTrue, r.forPeople, sentence(name+" is the new revision", r.waiting)), true
	case r.advanced, had(v1beta1.ReasonWaitingForDeletion), had(v1beta1.ReasonWaitingForSelection),
		had(v1beta1.ReasonWaitingForDisruptionBudget), had(v1beta1.ReasonVersionSkew):
		return is(metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated, sentence(name+" is progressing", r.now())), true
	case had(v1beta1.ReasonDeploymentPaused), had(v1beta1.ReasonFrozen):
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentResumed, sentence("the rollout goes on", r.now())), true
	case had(v1beta1.ReasonProgressDeadlineExceeded), r.still >= r.deadline:
		return is(metav1.ConditionFalse, v1beta1.ReasonProgressDeadlineExceeded,
			sentence(fmt.Sprintf("%s has made no progress for %s", name, r.deadline), r.now())), false
	case had(v1beta1.ReasonDeploymentResumed):
		return is(metav1.ConditionUnknown, v1beta1.ReasonDeploymentResumed, sentence("the rollout goes on", r.now())), false
	case had(v1beta1.ReasonNewMachineSetCreated), had(v1beta1.ReasonFoundNewMachineSet):
		return is(metav1.ConditionTrue, before.Reason, sentence(name+" is the new revision", r.now())), false
	}
	return is(metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated, sentence(name+" is progressing", r.now())), false
}

// progressedAt returns when the rollout last came closer to its end, by the times in the API, which survive a restart.
// Without any it is the creation of the deployment.
func (v *view) progressedAt(d *v1beta1.MachineDeployment, now time.Time) time.Time {
	last := d.CreationTimestamp.Time
	note := func(t time.Time) {
		if t.After(now) {
			t = now // another host's clock is ahead
		}
		if t.After(last) {
			last = t
		}
	}
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == v1beta1.ConditionRollingOut && c.Status == metav1.ConditionTrue, // it began
			c.Type == v1beta1.ConditionProgressing && c.Status != metav1.ConditionFalse, // it was stuck until then
			c.Type == v1beta1.ConditionPaused && c.Status == metav1.ConditionFalse,
			c.Type == v1beta1.ConditionFrozen && c.Status == metav1.ConditionFalse:
			note(c.LastTransitionTime.Time)
		}
	}
	if v.current >= 0 {
		note(v.sets[v.current].CreationTimestamp.Time)
	}
	for i, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			switch {
			case i == v.current:
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

// now returns doing, or else waiting.
func (r rollout) now() string {
	if r.doing != "" {
		return r.doing
	}
	return r.waiting
}

// deadlineIn returns the time until the progress deadline, 0 if there is none now.
func deadlineIn(condition metav1.Condition, r rollout) time.Duration {
	if r.complete || condition.Status == metav1.ConditionFalse {
		return 0
	}
	switch condition.Reason {
	case v1beta1.ReasonNewMachineSetAvailable, v1beta1.ReasonWaitingForDeletion, v1beta1.ReasonWaitingForSelection,
		v1beta1.ReasonWaitingForDisruptionBudget, v1beta1.ReasonVersionSkew, v1beta1.ReasonDeploymentPaused,
		v1beta1.ReasonFrozen:
		return 0
	}
	return max(time.Millisecond, r.deadline-r.still)
}

// sentence joins a fact and its reason into a message.
func sentence(what, why string) string {
	if what == "" {
		what, why = why, ""
	}
	if what == "" {
		return ""
	}
	text := string(what[0]-'a'+'A') + what[1:]
	if what[0] < 'a' || what[0] > 'z' {
		text = what
	}
	if why != "" {
		text += ": " + why
	}
	return text + "."
}
