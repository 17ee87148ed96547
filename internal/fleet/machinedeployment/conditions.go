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

type conditions struct {
	status     *v1beta1.MachineDeploymentStatus
	generation int64
	now        time.Time
	// step is the beginning of messages about the rollout, or empty.
	step string
}

func (c conditions) put(condition metav1.Condition) {
	if condition.Type == v1beta1.ConditionProgressing || condition.Type == v1beta1.ConditionRollingOut {
		condition.Message = strings.TrimSuffix(c.step+condition.Message, " ")
	}
	condition.Message = wording.Shorten(condition.Message)
	condition.ObservedGeneration = c.generation
	condition.LastTransitionTime = metav1.NewTime(c.now)
	meta.SetStatusCondition(&c.status.Conditions, condition)
}

func (c conditions) find(kind string) *metav1.Condition {
	return meta.FindStatusCondition(c.status.Conditions, kind)
}

// set writes a condition. The two reasons are for the status True and the status False.
func (c conditions) set(kind string, isTrue bool, reason, otherwise, message string) {
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	if !isTrue {
		condition.Status, condition.Reason = metav1.ConditionFalse, otherwise
	}
	c.put(condition)
}

// setOnce writes the condition like set, but omits a condition that has never been True.
func (c conditions) setOnce(kind string, isTrue bool, reason, otherwise, message, falseMessage string) {
	if !isTrue && c.find(kind) == nil {
		return
	}
	if !isTrue {
		message = falseMessage
	}
	c.set(kind, isTrue, reason, otherwise, message)
}

func (c conditions) writeRollingOut(v *view, r rollout) {
	condition := metav1.Condition{Type: v1beta1.ConditionRollingOut, Status: metav1.ConditionTrue}
	switch outdated := v.outdatedMachines(); {
	case outdated == 0 && v.state.CurrentIndex >= 0 && v.updating() == 0 && v.step.isLast:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1beta1.ReasonRolloutComplete
		condition.Message = sentence(fmt.Sprintf("all machines are of revision %d", c.status.CurrentRevision), r.waitMessage)
	case r.waitReason == v1beta1.ReasonPartitionReached && v.step.isLast:
		condition.Status, condition.Reason = metav1.ConditionFalse, r.waitReason
		condition.Message = sentence(r.now(), "")
	case r.actions != "" && !isVersionWait(r.waitReason):
		condition.Reason, condition.Message = v1beta1.ReasonRollingOut, sentence("scaling "+r.actions, "")
	case r.waitReason != "" && !r.paused && !r.frozen:
		condition.Reason, condition.Message = r.waitReason, sentence(r.waitMessage, "")
	default:
		condition.Reason, condition.Message = v1beta1.ReasonRolloutBlocked, sentence(r.waitMessage, "")
	}
	if old := v.olderThanRolloutAfter(); old != "" {
		condition.Message = strings.TrimPrefix(condition.Message+" "+sentence(old, ""), " ")
	}
	c.put(condition)
}

// writeFrozen writes the condition Frozen. The controller that set the freeze label may already have written a more
// specific reason, which is kept.
func (c conditions) writeFrozen(v *view) {
	if v.freeze == v1beta1.ReasonFrozenByLabel &&
		meta.IsStatusConditionTrue(c.status.Conditions, v1beta1.ConditionFrozen) {
		return
	}
	c.setOnce(v1beta1.ConditionFrozen, v.state.Frozen, v.freeze, v1beta1.ReasonThawed, v.freezeMessage,
		"The freeze has ended: machines are created and rollouts continue.")
}

func (c conditions) writeSetConditions(v *view, status *v1beta1.MachineDeploymentStatus) {
	c.writeHibernated(v, v.hibernated)
	replicas := v.state.Replicas
	var deleting int32
	var failure *metav1.Condition
	var notReady string
	for i, set := range v.sets {
		deleting += v.state.Sets[i].Deleting
		if found := replicaFailure(set); found.Status == metav1.ConditionTrue && (failure == nil || i == v.currentIndex) {
			failure = &found
		}
		for _, m := range v.machines[set.UID] {
			if m.DeletionTimestamp.IsZero() && (notReady == "" || m.Name < notReady) && !machinestate.IsReady(m) {
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

// writeReady writes the conditions that summarize the deployment, with the reason and message of the condition that
// explains the state. A pause or freeze does not matter once the deployment matches its spec. A deployment with
// machines that have no place in spec.placement is never Ready.
func (c conditions) writeReady(v *view, r rollout) {
	progress, rolling := c.find(v1beta1.ConditionProgressing), c.find(v1beta1.ConditionRollingOut)
	isRolling := rolling.Status == metav1.ConditionTrue
	carriedOut := c.status.ObservedGeneration == c.generation && r.rejection == nil
	because := progress
	balanced := c.find(v1beta1.ConditionBalanced)
	switch {
	case carriedOut && (r.complete || r.partitionReached) && r.unplaced && balanced != nil:
		c.summarize(false, true, balanced.Reason, balanced.Message)
		return
	case carriedOut && r.complete:
		because = &metav1.Condition{Reason: v1beta1.ReasonRolloutComplete, Message: fmt.Sprintf(
			"%s of revision %d, all available.", wording.Count(c.status.Replicas, "machine"), c.status.CurrentRevision)}
	case carriedOut && r.partitionReached:
	case progress.Status == metav1.ConditionFalse, r.frozen, isRolling && r.paused:
	case isRolling:
		because = rolling
	case r.revisionReason != "":
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
	c.summarize(carriedOut && (r.complete || r.partitionReached), progress.Status == metav1.ConditionFalse,
		because.Reason, message)
}

// summarize writes the kstatus conditions, by which GitOps tools wait for the deployment. Exactly one of the conditions
// Ready, Reconciling and Stalled is True.
func (c conditions) summarize(ready, stuck bool, reason, message string) {
	c.set(v1beta1.ConditionReady, ready, reason, reason, message)
	c.setOnce(v1beta1.ConditionReconciling, !ready && !stuck, reason, reason, message, "")
	c.setOnce(v1beta1.ConditionStalled, !ready && stuck, reason, reason, message, "")
}

// olderThanRolloutAfter returns a message if spec.rolloutAfter has no effect because the strategy InPlace replaces no
// instances. Otherwise, olderThanRolloutAfter returns "".
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

func launchedBefore(m *v1beta1.Machine, t time.Time) bool {
	if in := m.Status.Instance; in != nil && in.LaunchTime != nil && !in.LaunchTime.Time.Before(t) {
		return false
	}
	return m.CreationTimestamp.Time.Before(t)
}
