package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/reachability"
)

// Reach knows whether the target cluster can be reached.
type Reach interface {
	// TargetUnreachable reports whether the target cluster counts as unreachable, and since when.
	TargetUnreachable() (since time.Time, unreachable bool)
	// TargetRefuses reports whether it counts as unreachable because it refuses the credentials of this process.
	TargetRefuses() bool
	// TargetOutages returns its outages that are over, the oldest first, and the epoch in which that is all there is.
	TargetOutages() (past []reachability.Outage, epoch uint64)
}

// targetPoll is how often a Machine that waits for the target cluster looks whether it is back.
const targetPoll = 10 * time.Second

// lastTry is how long the target cluster may take to answer before a deletion goes on without it.
const lastTry = 2 * time.Second

// waitWhileUnreachable stops a drain while the target cluster counts as unreachable, without a call that might hang.
// unreachable is false when nothing is decided. As when calls fail, a machine whose user insists goes on, and so does
// one that never had a Node, unless the cluster answers one request again: then the process is about to know that the
// outage is over. A cluster that refuses the credentials is one that machines can join, so that nobody knows which of
// them have pods.
func (s *teardownStep) waitWhileUnreachable(ctx context.Context) (proceed progress, unreachable bool) {
	if s.Target == nil || s.Reach == nil {
		return next, false
	}
	since, unreachable := s.Reach.TargetUnreachable()
	if !unreachable {
		return next, false
	}
	// That time is given to each deletion anew: an outage that has lasted may be about to end, and what the Machine has in
	// the target cluster is then found.
	left := targetPatience - min(s.now.Sub(since), s.now.Sub(s.targetFailsSince()))
	refuses := s.Reach.TargetRefuses()
	neverJoined := s.machine.Status.NodeRef == nil && !refuses
	if s.forced() || neverJoined && left <= 0 && !s.targetAnswers(ctx) {
		s.leftBehind = true
		return next, true
	}
	s.requeueIn(targetPoll)
	if neverJoined && left > 0 {
		s.requeueIn(left)
	}
	if refuses {
		s.deleting(v1beta1.ReasonTargetCredentialsRefused,
			fmt.Sprintf("The target cluster refuses the provider's credentials since %s, so that nobody can tell which pods would be killed.", since.UTC().Format(time.RFC3339)))
		return atTime, true
	}
	s.deleting(v1beta1.ReasonTargetUnreachable, fmt.Sprintf("The target cluster cannot be reached since %s.",
		since.UTC().Format(time.RFC3339)))
	return atTime, true
}

// outageEndedAfter reports whether an outage of the target cluster was over at a later time than the given one.
func outageEndedAfter(reach Reach, since time.Time) bool {
	past, _ := reach.TargetOutages()
	return len(past) > 0 && past[len(past)-1].To.After(since)
}

// targetAnswers asks the API server itself, for a moment, for a Node with the Machine's name.
func (s *teardownStep) targetAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lastTry)
	defer cancel()
	name := cmp.Or(index.NodeName(s.machine), s.machine.Name)
	return client.IgnoreNotFound(s.Target.Live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})) == nil
}

// leaveOutagesOut sets the clock of a drain, and that of the wait for its volumes, back by the time that the target
// cluster was unreachable: both count from the transition of Drained. The condition DrainExtended has the time until
// which outages are left out; it is written together with that transition, so that no process, this one or the next,
// leaves one out twice.
func (s *drainStep) leaveOutagesOut() {
	if s.Reach == nil {
		return
	}
	var past []reachability.Outage
	past, s.epoch = s.Reach.TargetOutages()
	conditions := &s.machine.Status.Conditions
	drained := meta.FindStatusCondition(*conditions, v1beta1.ConditionDrained)
	if drained == nil {
		return
	}
	var counted time.Time
	if extended := meta.FindStatusCondition(*conditions, v1beta1.ConditionDrainExtended); extended != nil {
		counted = extended.LastTransitionTime.Time
	}
	began := drained.LastTransitionTime.Time
	until, counted := reachability.ExcludeOutages(past, began, counted)
	if until.Equal(began) {
		return
	}
	drained.LastTransitionTime = metav1.NewTime(until)
	// It is made anew, since its transition is what it is for.
	dropCondition(conditions, v1beta1.ConditionDrainExtended)
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1beta1.ConditionDrainExtended, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonTargetUnreachable,
		Message: fmt.Sprintf("The target cluster was unreachable until %s: %s do not count.",
			counted.UTC().Format(time.RFC3339), until.Sub(began)),
		ObservedGeneration: s.machine.Generation, LastTransitionTime: metav1.NewTime(counted),
	})
}

// joinTimeLeft is how long the Machine has to become a Node, less than nothing when its time is over. The time in
// which the target cluster was unreachable does not count, and during an outage there is always some left: no Node
// can join. Nor does the time of an instance before this process began to lead: it does not know of the outages of
// that time. That has an end (see reachability.TimeLeft), or leaders that do not last would wait for ever.
func (p *pass) joinTimeLeft() time.Duration {
	began, timeout := p.launch.began(), p.machine.Spec.Timeouts.CreationOrDefault()
	if p.Reach == nil {
		return began.Add(timeout).Sub(p.now)
	}
	past, _ := p.Reach.TargetOutages()
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

// outage reports whether the target cluster counts as unreachable now.
func (p *pass) outage() bool {
	if p.Reach == nil {
		return false
	}
	_, unreachable := p.Reach.TargetUnreachable()
	return unreachable
}
