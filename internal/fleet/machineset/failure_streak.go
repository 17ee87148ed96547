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

// Some mistakes break every new machine of a set in the same way: a wrong image, invalid user data, or a cloud
// controller that gives Nodes another provider ID. In this case, each replacement costs an instance until
// spec.timeouts.creation has passed, and may leave a Node behind. Therefore, after a few consecutive replacements
// of this kind, the set stops and replaces only one machine per hour.

const (
	// failuresInARow is the number of consecutive failed replacements after which a set stops replacing machines.
	failuresInARow = 3
	// failingRetry is the time after which a stopped set replaces one more machine, to find out whether the replacement
	// joins the cluster.
	failingRetry = time.Hour
)

// failureStreak counts consecutive machines that a set replaced because their instances never became Ready Nodes, all
// for the same reason. The streak ends when a machine joins the cluster that is not older than the machines of the
// streak. The count is kept only in memory. After a restart, the condition ReplicaFailure shows whether the set has
// stopped.
type failureStreak struct {
	// template is the template of the machines. It is nil before the first pass.
	template *v1beta1.MachineTemplateSpec
	// count is the number of machines in the streak, reason is why they failed, and message is the message of the
	// condition ReplicaFailure.
	count           int
	reason, message string
	// oldest is the creation time of the oldest machine in the streak, according to the API server's clock. last is
	// the time at which the last machine of the streak was replaced.
	oldest, last time.Time
}

// stopped reports whether the set has stopped replacing machines, except for one machine per hour.
func (r *failureStreak) stopped() bool { return r.count >= failuresInARow }

// replicaFailure returns the reason and message of the condition ReplicaFailure if the set has stopped.
func (r *failureStreak) replicaFailure() Reason {
	if !r.stopped() {
		return Reason{}
	}
	return Reason{v1beta1.ReasonReplacementsFailing, r.message}
}

// observe ends the streak if the template has changed, replicas are 0, or a machine has joined the cluster that is not
// older than the machines of the streak. A process that observes the set for the first time restores the streak from
// the set's condition.
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

// add records machines that were deleted in order to be replaced. A machine that had joined the cluster or never
// had an instance neither extends nor ends the streak.
func (r *failureStreak) add(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		reason, why := neverJoined(m)
		if reason == "" {
			continue
		}
		// If a streak was restored from a condition, the reason of the streak is not known.
		if r.count > 0 && r.reason != "" && r.reason != reason {
			*r = failureStreak{template: r.template}
		}
		if r.count == 0 || m.CreationTimestamp.Time.Before(r.oldest) {
			r.oldest = m.CreationTimestamp.Time
		}
		if r.count++; r.count <= failuresInARow {
			// After the set has stopped, further attempts do not change the message.
			r.message = wording.Brief(fmt.Sprintf("The last %d replaced machines never became Ready, all for the same reason, "+
				"so the set replaces only one machine per hour: %s: %s", failuresInARow, reason, why))
		}
		r.reason, r.last = reason, now
	}
}

// neverJoined returns the reason for the replacement of a machine that has an instance but was never a Ready Node.
// For any other machine, the reason is empty.
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

// replaceAnyway returns the candidates that are replaced although the set has stopped. These are the candidates with
// the annotation machinist.dev/remediate and, after failingRetry, one other candidate. The result wait is the time
// until that other candidate is replaced. It is zero if this time has passed or there is no other candidate.
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
