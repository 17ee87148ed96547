package machineset

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// A wrong image, user data that cannot join, or a cloud controller that gives Nodes another provider ID breaks every
// new machine of a set in the same way. Each replacement then costs an instance until spec.timeouts.creation has
// passed, and may leave a Node behind. So after some replacements in a row, the set stops and replaces only one machine
// per hour.

const (
	// failuresInARow is the number of machines replaced in a row after which their set stops replacing machines.
	failuresInARow = 3
	// failingRetry is the time after which a stopped set replaces one machine, to see whether the replacement joins.
	failingRetry = time.Hour
)

// failureStreak counts machines that a set replaced in a row because their instances never became Ready Nodes, all for
// the same reason. The streak ends when a machine that is as young as these joins. It is in memory. After a restart,
// the condition ReplicaFailure shows whether the set has stopped.
type failureStreak struct {
	// template is the template of the machines. It is nil before the first pass.
	template *v1beta1.MachineTemplateSpec
	// count is the number of machines, reason is why they failed, and message is the message of ReplicaFailure.
	count           int
	reason, message string
	// oldest is when the oldest machine of the streak was created, by the API server's clock. last is when the last one
	// was replaced.
	oldest, last time.Time
}

// stopped reports whether the set has stopped replacing machines, except one per hour.
func (r *failureStreak) stopped() bool { return r.count >= failuresInARow }

// replicaFailure returns the reason and message of ReplicaFailure if the set has stopped.
func (r *failureStreak) replicaFailure() Reason {
	if !r.stopped() {
		return Reason{}
	}
	return Reason{v1beta1.ReasonReplacementsFailing, r.message}
}

// observe ends the streak if the template has changed, replicas are 0, or a machine that is as young as the machines of
// the streak has joined. A process that observes the set for the first time restores the streak from the set's
// condition.
func (r *failureStreak) observe(set *v1beta1.MachineSet, machines []*v1beta1.Machine) {
	template := &set.Spec.Template
	switch {
	case r.template == nil:
		c := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReplicaFailure)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacementsFailing {
			r.count, r.message, r.oldest = failuresInARow, c.Message, c.LastTransitionTime.Time
		}
	case !equality.Semantic.DeepEqual(r.template, template), set.ReplicasOrDefault() == 0:
		*r = failureStreak{}
	}
	r.template = template
	if r.count == 0 {
		return
	}
	for _, m := range machines {
		if machinestate.Live(m) && machinestate.Ready(m) && !m.CreationTimestamp.Time.Before(r.oldest) {
			*r = failureStreak{template: template}
			return
		}
	}
}

// add records machines that were deleted in order to replace them. Machines that had joined, or never had an instance,
// neither extend the streak nor end it.
func (r *failureStreak) add(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		reason, why := neverJoined(m)
		if reason == "" {
			continue
		}
		// The reason of a streak that was restored from a condition is not known.
		if r.count > 0 && r.reason != "" && r.reason != reason {
			*r = failureStreak{template: r.template}
		}
		if r.count == 0 || m.CreationTimestamp.Time.Before(r.oldest) {
			r.oldest = m.CreationTimestamp.Time
		}
		if r.count++; r.count <= failuresInARow {
			// Once the set has stopped, the message does not change with each further attempt.
			r.message = wording.Brief(fmt.Sprintf("The last %d replaced machines never became Ready, all for the same reason, "+
				"so the set replaces only one machine per hour: %s: %s", failuresInARow, reason, why))
		}
		r.reason, r.last = reason, now
	}
}

// neverJoined returns why a machine that has an instance, but never was a Ready Node, is replaced. The reason is empty
// for any other machine.
func neverJoined(m *v1beta1.Machine) (reason, message string) {
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch {
	case m.Spec.ProviderID == "":
	case m.Status.FailureReason == v1beta1.FailureJoinClusterTimeout:
		return string(m.Status.FailureReason), m.Status.FailureMessage
	case m.Status.FailureReason == "" && machinestate.Starting(m) && requested != nil &&
		requested.Status == metav1.ConditionTrue && requested.Reason != v1beta1.ReasonRemediateAnnotation:
		return requested.Reason, requested.Message
	}
	return "", ""
}

// replaceAnyway returns the candidates that are replaced although the set has stopped: those with the annotation
// machinist.dev/remediate, and one of the other candidates after failingRetry. wait is the time until that candidate is
// replaced, or zero if this time has passed or there are no other candidates.
func (r *failureStreak) replaceAnyway(candidates []*v1beta1.Machine, now time.Time) (some []*v1beta1.Machine,
	wait time.Duration) {
	var others []*v1beta1.Machine
	for _, m := range candidates {
		if has(m.Annotations, v1beta1.AnnotationRemediate) {
			some = append(some, m)
		} else {
			others = append(others, m)
		}
	}
	if len(others) == 0 {
		return some, 0
	}
	if wait = r.last.Add(failingRetry).Sub(now); wait > 0 {
		return some, wait
	}
	return append(some, others[0]), 0
}
