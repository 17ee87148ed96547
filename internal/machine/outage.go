package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
)

// Reachability reports whether the target cluster can be reached.
type Reachability interface {
	// TargetUnreachable reports whether the target cluster is unreachable now, and when the outage began.
	TargetUnreachable() (since time.Time, unreachable bool)
	// TargetRefuses reports whether the target cluster rejects the credentials of this process.
	TargetRefuses() bool
	// TargetOutages returns the outages that are over, the oldest one first, and the current epoch. The epoch changes
	// whenever an outage begins or ends.
	TargetOutages() (past []reachability.Outage, epoch uint64)
}

// targetPoll is the time between two checks of whether the target cluster can be reached again.
const targetPoll = 10 * time.Second

// excludeOutages moves the start of a drain forward by the time for which the target cluster was unreachable. The start
// of the drain is the transition time of the condition Drained. Outages before the transition time of the condition
// DrainExtended are already excluded. Both conditions are written in one patch, so that no process excludes the same
// outage twice. The result is the number of the last outage that is excluded.
func (p *pass) excludeOutages() (epoch uint64) {
	if p.Reachability == nil {
		return 0
	}
	past, epoch := p.Reachability.TargetOutages()
	conditions := &p.machine.Status.Conditions
	drained := meta.FindStatusCondition(*conditions, v1beta1.ConditionDrained)
	if drained == nil {
		return epoch
	}
	var counted time.Time
	if extended := meta.FindStatusCondition(*conditions, v1beta1.ConditionDrainExtended); extended != nil {
		counted = extended.LastTransitionTime.Time
	}
	began := drained.LastTransitionTime.Time
	until, counted := reachability.ExcludeOutages(past, began, counted)
	if until.Equal(began) {
		return epoch
	}
	drained.LastTransitionTime = metav1.NewTime(until)
	// Replace the condition instead of updating it, because only its lastTransitionTime matters.
	dropCondition(conditions, v1beta1.ConditionDrainExtended)
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1beta1.ConditionDrainExtended, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonTargetUnreachable,
		Message: fmt.Sprintf("The target cluster was unreachable until %s. The drain is extended by %s.",
			counted.UTC().Format(time.RFC3339), until.Sub(began)),
		ObservedGeneration: p.machine.Generation, LastTransitionTime: metav1.NewTime(counted),
	})
	return epoch
}

// joinTimeLeft returns the time that the Machine still has to become a Node. The result is negative if the time is
// over. Outages of the target cluster do not count, and during an outage, the result is always positive. For a Machine
// with an instance, only the time since this process became the leader counts, because earlier outages are unknown. If
// leaders change often, earlier time counts too (see reachability.TimeLeft), so that the timeout ends.
func (p *pass) joinTimeLeft() time.Duration {
	began, timeout := joinStart(p.machine), p.machine.Spec.Timeouts.CreationOrDefault()
	if p.Reachability == nil {
		return began.Add(timeout).Sub(p.now)
	}
	past, _ := p.Reachability.TargetOutages()
	counted := began
	if p.machine.Spec.ProviderID != "" && began.Before(p.leading) {
		counted = p.leading
	}
	began, _ = reachability.ExcludeOutages(past, began, time.Time{})
	counted, _ = reachability.ExcludeOutages(past, counted, time.Time{})
	left := reachability.TimeLeft(timeout, began, counted, p.leading, p.now)
	if p.outage() {
		return max(left, targetPoll)
	}
	return left
}

func (p *pass) outage() bool {
	if p.Reachability == nil {
		return false
	}
	_, unreachable := p.Reachability.TargetUnreachable()
	return unreachable
}
