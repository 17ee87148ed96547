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

// Some mistakes break every new machine of a set: a wrong image, invalid user data, or Nodes with another provider ID.
// Each replacement then costs an instance until spec.timeouts.creation and may leave a Node behind. After a few such
// replacements, the set therefore replaces only one machine per hour.

const (
	// failuresInARow is the number of consecutive failed replacements that stops further replacements.
	failuresInARow = 3
	// failingRetry is how often a stopped set replaces one machine, to find out whether the cause is fixed.
	failingRetry = time.Hour
)

// failureStreak counts consecutive replaced machines whose instances never became Ready Nodes, all for the same reason.
// If a newer machine joins the cluster, the count starts again at zero. After a restart, the condition ReplicaFailure
// shows whether the set has stopped.
type failureStreak struct {
	// template is the set's template at the last pass, or nil before the first pass.
	template *v1beta1.MachineTemplateSpec
	// count, reason and message describe the failed machines. message is that of the condition ReplicaFailure.
	count           int
	reason, message string
	// oldestCreation is the creation time of the streak's oldest machine, by the API server's clock. lastFailure is
	// when its last machine was replaced.
	oldestCreation, lastFailure time.Time
}

func (r *failureStreak) stopped() bool { return r.count >= failuresInARow }

func (r *failureStreak) replicaFailure() ConditionReason {
	if !r.stopped() {
		return ConditionReason{}
	}
	return ConditionReason{v1beta1.ReasonReplacementsFailing, r.message}
}

// observe updates the streak. The count starts again at zero if the template has changed or replicas are 0. It also
// starts again if a machine joins the cluster that is newer than the oldest counted machine. The first call restores
// the streak from the set's condition.
func (r *failureStreak) observe(set *v1beta1.MachineSet, machines []*v1beta1.Machine) {
	template := &set.Spec.Template
	switch {
	case r.template == nil:
		c := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReplicaFailure)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacementsFailing {
			r.count, r.message, r.oldestCreation = failuresInARow, c.Message, c.LastTransitionTime.Time
		}
	case !equality.Semantic.DeepEqual(r.template, template), set.ReplicasOrDefault() == 0:
		*r = failureStreak{}
	}
	r.template = template
	if r.count == 0 {
		return
	}
	for _, m := range machines {
		if machinestate.IsLive(m) && machinestate.IsReady(m) && !m.CreationTimestamp.Time.Before(r.oldestCreation) {
			*r = failureStreak{template: template}
			return
		}
	}
}

// add records replaced machines. A machine that had joined, or never had an instance, neither extends nor ends the
// streak.
func (r *failureStreak) add(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		reason, why := neverJoined(m)
		if reason == "" {
			continue
		}
		// If the streak was restored from the condition ReplicaFailure, its reason is empty, because the condition does
		// not contain the reason.
		if r.count > 0 && r.reason != "" && r.reason != reason {
			*r = failureStreak{template: r.template}
		}
		if r.count == 0 || m.CreationTimestamp.Time.Before(r.oldestCreation) {
			r.oldestCreation = m.CreationTimestamp.Time
		}
		if r.count++; r.count <= failuresInARow {
			r.message = wording.Shorten(fmt.Sprintf("The last %d replaced machines never became Ready, all for the same reason, "+
				"so the set replaces only one machine per hour: %s: %s", failuresInARow, reason, why))
		}
		r.reason, r.lastFailure = reason, now
	}
}

// neverJoined returns the reason for the replacement of a machine whose instance never became a Ready Node. If the
// instance became a Ready Node or the machine is not replaced, the reason is empty.
func neverJoined(m *v1beta1.Machine) (reason, message string) {
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch {
	case m.Spec.ProviderID == "":
	case m.Status.FailureReason == v1beta1.FailureJoinClusterTimeout:
		return string(m.Status.FailureReason), m.Status.FailureMessage
	case m.Status.FailureReason == "" && machinestate.IsStarting(m) && requested != nil &&
		requested.Status == metav1.ConditionTrue && requested.Reason != v1beta1.ReasonRemediateAnnotation:
		return requested.Reason, requested.Message
	}
	return "", ""
}

// replaceAnyway returns the candidates that a stopped set replaces: those with the annotation machinist.dev/remediate
// and, after failingRetry, one additional candidate. wait is the time until this additional candidate may be
// replaced, or zero.
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
	if wait = r.lastFailure.Add(failingRetry).Sub(now); wait > 0 {
		return some, wait
	}
	return append(some, others[0]), 0
}
