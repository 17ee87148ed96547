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

// A wrong image, user data that cannot join, or a cloud controller that gives Nodes another provider ID break every new
// machine of a set in the same way. Each replacement then costs an instance until spec.timeouts.creation has passed,
// and may leave a Node behind. So after some replacements in a row the set stops, and tries one machine from time to
// time.

const (
	// failuresInARow is how many machines are replaced in a row until their set stops to replace any.
	failuresInARow = 3
	// failingRetry is how long a set that has stopped waits before it replaces one machine, to see whether its replacement
	// joins.
	failingRetry = time.Hour
)

// failingRow is a row of machines that a set replaced because their instances never became Ready Nodes, all for the
// same reason, while no machine joined that is as young as they are. It is in memory. After a restart, the condition
// ReplicaFailure says that the set has stopped.
type failingRow struct {
	// template is what the machines were made from; nil before the first pass.
	template *v1beta1.MachineTemplateSpec
	// count is how many machines there are, reason why they failed and message what ReplicaFailure says of it.
	count           int
	reason, message string
	// oldest is when the first machine of the row was created, by the API server's clock, and last when the last one was
	// replaced.
	oldest, last time.Time
}

// stopped reports whether the set replaces no more machines on its own.
func (r *failingRow) stopped() bool { return r.count >= failuresInARow }

// problem is what ReplicaFailure says of a set that has stopped.
func (r *failingRow) problem() Reason {
	if !r.stopped() {
		return Reason{}
	}
	return Reason{v1beta1.ReasonReplacementsFailing, r.message}
}

// observe ends the row if the template has changed, no machine is wanted any more, or a machine has joined that is as
// young as those of the row. A process that observes the set for the first time finds in its condition whether it has
// stopped.
func (r *failingRow) observe(set *v1beta1.MachineSet, machines []*v1beta1.Machine) {
	template := &set.Spec.Template
	switch {
	case r.template == nil:
		c := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReplicaFailure)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1beta1.ReasonReplacementsFailing {
			r.count, r.message, r.oldest = failuresInARow, c.Message, c.LastTransitionTime.Time
		}
	case !equality.Semantic.DeepEqual(r.template, template), set.ReplicasOrDefault() == 0:
		*r = failingRow{}
	}
	r.template = template
	if r.count == 0 {
		return
	}
	for _, m := range machines {
		if machinestate.Live(m) && machinestate.Ready(m) && !m.CreationTimestamp.Time.Before(r.oldest) {
			*r = failingRow{template: template}
			return
		}
	}
}

// add records machines that were deleted to be replaced. Those that had joined, or never had an instance, count neither
// for the row nor against it.
func (r *failingRow) add(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		reason, why := neverJoined(m)
		if reason == "" {
			continue
		}
		// The reason of a row that was found in a condition is not known.
		if r.count > 0 && r.reason != "" && r.reason != reason {
			*r = failingRow{template: r.template}
		}
		if r.count == 0 || m.CreationTimestamp.Time.Before(r.oldest) {
			r.oldest = m.CreationTimestamp.Time
		}
		if r.count++; r.count <= failuresInARow {
			// The message of a set that has stopped does not change with each try.
			r.message = wording.Brief(fmt.Sprintf("The last %d machines that were replaced failed in the same way, and no more "+
				"are replaced, except one an hour to see whether it joins: %s: %s", failuresInARow, reason, why))
		}
		r.reason, r.last = reason, now
	}
}

// neverJoined returns why a machine with an instance that never was a Ready Node has to be replaced; the reason is
// empty if it is none.
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

// trySome returns which machines of a set that has stopped are replaced anyway: those of which a person asks it, and
// one of the others when its time has come. wait is the time until then, zero if it has come.
func (r *failingRow) trySome(candidates []*v1beta1.Machine, now time.Time) (some []*v1beta1.Machine,
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
