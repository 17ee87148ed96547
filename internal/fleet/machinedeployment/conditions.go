package machinedeployment

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// conditions writes conditions into the status of one deployment.
type conditions struct {
	status     *v1beta1.MachineDeploymentStatus
	generation int64
	now        time.Time
}

// put writes a condition.
func (c conditions) put(condition metav1.Condition) {
	condition.Message = wording.Brief(condition.Message)
	condition.ObservedGeneration = c.generation
	condition.LastTransitionTime = metav1.NewTime(c.now)
	meta.SetStatusCondition(&c.status.Conditions, condition)
}

func (c conditions) find(kind string) *metav1.Condition {
	return meta.FindStatusCondition(c.status.Conditions, kind)
}

// set writes a condition with status True or False, and with the reason for that status.
func (c conditions) set(kind string, isTrue bool, reason, otherwise, message string) {
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if !isTrue {
		condition.Status, condition.Reason = metav1.ConditionFalse, otherwise
	}
	c.put(condition)
}

// setOnce writes a condition that is not present until its status is True for the first time. Each of the statuses
// True and False has its own reason and message.
func (c conditions) setOnce(kind string, isTrue bool, reason, otherwise, message, falseMessage string) {
	if !isTrue && c.find(kind) == nil {
		return
	}
	if !isTrue {
		message = falseMessage
	}
	c.set(kind, isTrue, reason, otherwise, message)
}

// rollingOut writes the condition RollingOut. The condition tells whether machines are being replaced, and what the
// rollout is doing or waiting for.
func (c conditions) rollingOut(v *view, r rollout) {
	condition := metav1.Condition{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionTrue}
	switch outdated := v.outdated(); {
	case outdated == 0 && v.state.Current >= 0 && v.updating() == 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1beta1.ReasonRolloutComplete
		condition.Message = sentence(fmt.Sprintf("all machines are of revision %d", c.status.CurrentRevision), r.waiting)
	case r.doing != "" && r.waitReason != v1beta1.ReasonVersionSkew:
		condition.Reason, condition.Message = v1beta1.ReasonRollingOut, sentence("scaling "+r.doing, "")
	case r.waitReason != "" && !r.paused && !r.frozen:
		condition.Reason, condition.Message = r.waitReason, sentence(r.waiting, "")
	default:
		condition.Reason, condition.Message = v1beta1.ReasonRolloutBlocked, sentence(r.waiting, "")
	}
	if old := v.olderThanRolloutAfter(); old != "" {
		condition.Message = strings.TrimPrefix(condition.Message+" "+sentence(old, ""), " ")
	}
	c.put(condition)
}

// frozen writes the condition Frozen, whose reason is what stops the creation of machines and rollouts. The controller
// that set the freeze label may have written the condition already, with a more specific reason.
func (c conditions) frozen(v *view) {
	if v.freeze == v1beta1.ReasonFrozenByLabel &&
		meta.IsStatusConditionTrue(c.status.Conditions, v1beta1.ConditionFrozen) {
		return
	}
	c.setOnce(v1beta1.ConditionFrozen, v.state.Frozen, v.freeze, v1beta1.ReasonThawed, v.freezeMessage,
		"The freeze has ended: machines are created and rollouts continue.")
}

// ofSets writes the conditions that summarize all sets of the deployment.
func (c conditions) ofSets(v *view, status *v1beta1.MachineDeploymentStatus) {
	replicas := v.state.Replicas
	var deleting int32
	var failure *metav1.Condition
	var notReady string
	for i, set := range v.sets {
		deleting += v.state.Sets[i].Deleting
		if found := replicaFailure(set); found.Status == metav1.ConditionTrue && (failure == nil || i == v.current) {
			failure = &found
		}
		for _, m := range v.machines[set.UID] {
			if m.DeletionTimestamp.IsZero() && (notReady == "" || m.Name < notReady) && !machinestate.Ready(m) {
				notReady = m.Name
			}
		}
	}
	counts := fmt.Sprintf("The deployment has %s, wants %d, and is deleting %d more.",
		wording.Count(status.Replicas, "machine"), replicas, deleting)
	c.set(v1beta1.ConditionScalingUp, status.Replicas < replicas, v1beta1.ReasonScalingUp,
		v1beta1.ReasonAtDesiredReplicas, counts)
	c.set(v1beta1.ConditionScalingDown, status.Replicas > replicas || deleting > 0, v1beta1.ReasonScalingDown,
		v1beta1.ReasonAtDesiredReplicas, counts)
	message := "All machines are Ready."
	if notReady != "" {
		message = fmt.Sprintf("%d of %d machines are Ready. Machine %s is not Ready.", status.ReadyReplicas, status.Replicas,
			notReady)
	}
	c.set(v1beta1.ConditionMachinesReady, notReady == "", v1beta1.ReasonAllMachinesReady,
		v1beta1.ReasonMachinesNotReady, message)
	if failure == nil {
		failure = &metav1.Condition{}
	}
	c.setOnce(v1beta1.ConditionReplicaFailure, failure.Status == metav1.ConditionTrue, failure.Reason,
		v1beta1.ReasonNoFailure, failure.Message, "Machines can be created and deleted.")
}

// ready writes the conditions that summarize the deployment. They get the reason and the message of the condition
// that explains them. If the deployment already matches its specification, a pause or a freeze does not affect
// these conditions.
func (c conditions) ready(v *view, r rollout) {
	progress, rolling := c.find(v1beta1.ConditionProgressing), c.find(v1beta1.ConditionRollingOut)
	isRolling := rolling.Status == metav1.ConditionTrue
	carriedOut := c.status.ObservedGeneration == c.generation && r.rejected == nil
	because := progress
	switch {
	case carriedOut && r.complete:
		because = &metav1.Condition{Reason: v1beta1.ReasonRolloutComplete, Message: fmt.Sprintf(
			"%s of revision %d, all available.", wording.Count(c.status.Replicas, "machine"), c.status.CurrentRevision)}
	case progress.Status == metav1.ConditionFalse, r.frozen, isRolling && r.paused:
	case isRolling:
		because = rolling
	case r.began != "":
	case !carriedOut:
		because = &metav1.Condition{Reason: v1beta1.ReasonRolloutBlocked,
			Message: "The last change of the deployment has not been carried out yet."}
	case c.status.Replicas < v.state.Replicas:
		because = c.find(v1beta1.ConditionScalingUp)
	case c.status.Replicas > v.state.Replicas:
		because = c.find(v1beta1.ConditionScalingDown)
	default:
		because = &metav1.Condition{Reason: v1beta1.ReasonMachinesNotAvailable, Message: fmt.Sprintf(
			"%d of %d machines are available.", c.status.AvailableReplicas, c.status.Replicas)}
		if m := c.find(v1beta1.ConditionMachinesReady); m.Status == metav1.ConditionFalse {
			because.Message += " " + m.Message
		}
	}
	message := because.Message
	if message == "" { // The sets are carrying out an earlier decision.
		message = fmt.Sprintf("%d of %d machines are of the newest revision.", c.status.UpdatedReplicas, c.status.Replicas)
	}
	c.summarize(carriedOut && r.complete, progress.Status == metav1.ConditionFalse, because.Reason, message)
}

// summarize writes the kstatus conditions, from which GitOps tools determine whether the deployment is finished.
// Exactly one of these three conditions is True.
func (c conditions) summarize(ready, stuck bool, reason, message string) {
	c.set(v1beta1.ConditionReady, ready, reason, reason, message)
	c.setOnce(v1beta1.ConditionReconciling, !ready && !stuck, reason, reason, message, "")
	c.setOnce(v1beta1.ConditionStalled, !ready && stuck, reason, reason, message, "")
}

// olderThanRolloutAfter returns a message about machines that are kept although their instances are older than
// spec.rolloutAfter. If there are no such machines, it returns "". With the strategy InPlace, the machines move to
// the new revision, but the provider changes nothing. The message tells users who expect new instances that no
// instance will be replaced.
func (v *view) olderThanRolloutAfter() string {
	if v.state.Strategy != v1beta1.StrategyInPlace || v.rolloutAfter.IsZero() {
		return ""
	}
	var old int32
	for _, of := range v.machines {
		for _, m := range of {
			if m.DeletionTimestamp.IsZero() && launchedBefore(m, v.rolloutAfter) {
				old++
			}
		}
	}
	if old == 0 {
		return ""
	}
	return fmt.Sprintf("strategy InPlace does not replace %s launched before spec.rolloutAfter",
		wording.Count(old, "machine"))
}

// launchedBefore reports whether the machine's current instance was launched before t.
func launchedBefore(m *v1beta1.Machine, t time.Time) bool {
	if in := m.Status.Instance; in != nil && in.LaunchTime != nil && !in.LaunchTime.Time.Before(t) {
		return false
	}
	return m.CreationTimestamp.Time.Before(t)
}
