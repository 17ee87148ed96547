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

// Reach reports whether the target cluster can be reached.
type Reach interface {
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

// answerTimeout is how long a deletion waits for an answer of the target cluster before it continues without this
// cluster.
const answerTimeout = 2 * time.Second

// waitWhileUnreachable delays a deletion while the target cluster is unreachable. A force-deletion does not wait. If a
// machine never had a Node, its deletion waits only for targetPatience, and then sends one request. If the cluster
// answers, the outage will soon be over, and the deletion waits for this. If the cluster rejects the credentials, the
// deletion must always wait. Machines can still join, and the controller cannot see which of them have pods.
func (r *removal) waitWhileUnreachable(ctx context.Context) (proceed progress, unreachable bool) {
	if r.Target == nil || r.Reach == nil {
		return next, false
	}
	since, unreachable := r.Reach.TargetUnreachable()
	if !unreachable {
		return next, false
	}
	// Each deletion waits for the whole of targetPatience, even if the outage has lasted longer. The outage may end soon,
	// and then the resources of the Machine in the target cluster can be found and deleted.
	left := targetPatience - min(r.now.Sub(since), r.now.Sub(r.targetFailsSince()))
	refuses := r.Reach.TargetRefuses()
	neverJoined := r.machine.Status.NodeRef == nil && !refuses
	if forced(r.machine) || neverJoined && left <= 0 && !r.targetAnswers(ctx) {
		r.leftBehind = true
		return next, true
	}
	r.requeueIn(targetPoll)
	if neverJoined && left > 0 {
		r.requeueIn(left)
	}
	if refuses {
		r.deleting(v1beta1.ReasonTargetCredentialsRefused,
			fmt.Sprintf("Waiting for the target cluster, which has refused the provider's credentials since %s: it is not known which pods run on the node. Renew the kubeconfig of the target cluster.", since.UTC().Format(time.RFC3339)))
		return atTime, true
	}
	r.deleting(v1beta1.ReasonTargetUnreachable, fmt.Sprintf("Waiting for the target cluster, which has been unreachable since %s.",
		since.UTC().Format(time.RFC3339)))
	return atTime, true
}

func outageEndedAfter(reach Reach, since time.Time) bool {
	past, _ := reach.TargetOutages()
	return len(past) > 0 && past[len(past)-1].To.After(since)
}

func (r *removal) targetAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	name := cmp.Or(index.NodeName(r.machine), r.machine.Name)
	return client.IgnoreNotFound(r.Target.Live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})) == nil
}

// excludeOutages moves the start of a drain forward by the time for which the target cluster was unreachable. The start
// of the drain is the transition time of the condition Drained. The transition time of DrainExtended is the time up to
// which outages are already excluded. Both conditions are written in one patch, so that no process excludes the same
// outage twice. The result is the number of the last outage that is excluded.
func (p *pass) excludeOutages() (epoch uint64) {
	if p.Reach == nil {
		return 0
	}
	past, epoch := p.Reach.TargetOutages()
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
// with an instance, the time before this process became the leader does not count either, because the outages of that
// time are unknown. This second exception is limited (see reachability.TimeLeft). Otherwise, if leaders change often,
// the time would never be over.
func (p *pass) joinTimeLeft() time.Duration {
	began, timeout := joinStart(p.machine), p.machine.Spec.Timeouts.CreationOrDefault()
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

func (p *pass) outage() bool {
	if p.Reach == nil {
		return false
	}
	_, unreachable := p.Reach.TargetUnreachable()
	return unreachable
}
