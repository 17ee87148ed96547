package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// minRecheck and maxRecheck are the shortest and the longest time between two checks of a node that pods are
	// leaving.
	minRecheck = time.Second
	maxRecheck = 5 * time.Second

	// idleRecheck is the longest time between two checks of a node on which nothing is expected to happen.
	idleRecheck = time.Minute

	// terminationLeeway is how long the drain waits for a terminating pod after both the deadline and the end of the pod's
	// grace period. The kubelet needs some time to end the containers and to report it.
	terminationLeeway = 10 * time.Second

	// slowTermination is how long a pod may be terminating before it is reported as blocking the drain.
	slowTermination = time.Minute

	// NotReadyPatience is how long a terminating pod is waited for after the end of its grace period, on a node that
	// reports but is not Ready. If the container runtime is dead or a disk is read-only, the kubelet never ends the pod.
	// Kubernetes leaves pods on such a node for the same time by default.
	NotReadyPatience = 5 * time.Minute

	// deletePatience is how long failed deletions of a pod are retried before the drain continues without the pod.
	deletePatience = time.Minute
)

// Action is what happens to a pod in one pass.
type Action string

const (
	// Skip leaves the pod on the node, because it is bound to the node.
	Skip Action = "skip"
	// Ignore does not wait for the pod, because it has ended, or because waiting cannot succeed.
	Ignore Action = "ignore"
	// Await waits until a terminating pod is gone.
	Await Action = "await"
	// Block does nothing to the pod yet: its turn comes later, or the next attempt is not due.
	Block Action = "hold"
	// Evict asks the API server to evict the pod if its PodDisruptionBudgets allow it.
	Evict Action = "evict"
	// Delete deletes the pod regardless of PodDisruptionBudgets, or shortens the grace period of a terminating pod.
	Delete Action = "delete"
)

// Input is the input of Plan.
type Input struct {
	// Pods are all pods of the node.
	Pods []corev1.Pod
	// Now is the time of the plan.
	Now time.Time
	// Start and Deadline are the start and the deadline of the drain. A zero Deadline means that there is none:
	// PodDisruptionBudgets are then respected without a time limit.
	Start, Deadline time.Time
	// NodeReachable is false if the node's kubelet does not report: then nothing can confirm that a pod has ended.
	NodeReachable bool
	// NotReadySince is since when the node's kubelet reports that the node is not Ready. It is zero if the node is Ready
	// or does not report.
	NotReadySince time.Time
	// Orphaned contains the UIDs of DaemonSets that no longer exist. Their pods are evicted like others, because no
	// controller creates them again.
	Orphaned map[types.UID]bool
	// Successors are pods that appeared on the node after a pod of the same controller was evicted from it, by their UIDs.
	// The value is how long after the eviction the pod was first seen.
	Successors map[types.UID]time.Duration
	// Attempts are the results of earlier attempts, by UID of the pod.
	Attempts map[types.UID]Attempt
	// RecheckAfter is Decision.RecheckAfter of the previous decision, or 0 for the first one.
	RecheckAfter time.Duration
}

// Attempt is the result of the attempts to evict or to delete a pod that still exists.
type Attempt struct {
	// Failures is the number of failed attempts, and Since is the time of the first one.
	Failures int
	Since    time.Time
	// NotBefore is the earliest time of the next attempt.
	NotBefore time.Time
	// Deleting is since when the pod is deleted instead of evicted. It is zero before.
	Deleting time.Time
	// Refused is set if a PodDisruptionBudget refuses the eviction. Budgets are the names of such budgets, as far as they
	// are known.
	Refused bool
	Budgets []string
	// Never is set if those budgets, in their current form, can never allow the eviction.
	Never bool
	// Why explains to users why the last attempt failed.
	Why string
}

// Decision is what to do with the pods of a node now.
type Decision struct {
	// Steps contains one entry per pod, in the order of execution.
	Steps []Step
	// Done is true if there is no pod left to wait for.
	Done bool
	// Forced is true if the deadline is so near that at least one remaining pod is deleted, or was deleted.
	Forced bool
	// RecheckAfter is the time between two checks while pods are leaving. It is part of the next Input.
	RecheckAfter time.Duration
	// Next is when to check again at the latest. It is 0 if the drain is done.
	Next time.Duration
}

// Step is what happens to one pod.
type Step struct {
	Pod types.NamespacedName
	UID types.UID
	// Action is what to do with the pod.
	Action Action
	// Grace is the grace period for Delete in seconds, at least 1. For Evict, 0 means the grace period of the pod.
	Grace int64
	// Why explains the action.
	Why string
	// Slow is true if the pod has been terminating for a long time.
	Slow bool
	// Left is true if the pod is ignored although it may still be running.
	Left bool

	pod      *corev1.Pod
	turn     turn
	priority int32
	forced   bool // the time has come from which the pod is deleted
	// dueAt is when the pod needs attention, or zero if that depends on something else.
	dueAt time.Time
}

// Blocker is a pod that blocks a drain.
type Blocker struct {
	Pod types.NamespacedName
	UID types.UID
	// Attempt is the result of the attempts. For a pod that is slow to terminate, only Why is set.
	Attempt
}

// Plan decides what happens to each pod of a node that is being drained.
//
// Plan skips pods that are bound to their node: mirror pods, pods of a DaemonSet that exists, and successors that
// return to the node. It ignores pods that have ended. It evicts workload pods first, critical pods when no workload
// pod is left, and pods that tolerate the cordon last.
//
// PodDisruptionBudgets are respected until deadline − min(grace, length of the drain / 2). From then on, Plan deletes
// the pod with what is left of its grace period, at least one second, whether or not its turn has come. A pod that does
// not end although it was deleted is waited for until shortly after the deadline.
func Plan(in Input) Decision {
	p := planner{Input: in, deadline: deadline{start: in.Start, end: in.Deadline}}
	d := Decision{Steps: make([]Step, 0, len(in.Pods))}
	for i := range in.Pods {
		d.Steps = append(d.Steps, p.step(&in.Pods[i]))
	}
	slices.SortStableFunc(d.Steps, compareSteps)
	p.blockLaterTurns(d.Steps)

	d.Done = !slices.ContainsFunc(d.Steps, Step.pending)
	d.Forced = slices.ContainsFunc(d.Steps, func(s Step) bool { return s.forced && s.pending() })
	if !d.Done {
		d.RecheckAfter, d.Next = p.nextCheck(d.Steps)
	}
	return d
}

// pending reports whether the drain waits for the pod of this step.
func (s Step) pending() bool {
	return s.Action != Skip && s.Action != Ignore
}

// due reports whether an eviction or deletion is to be sent for this step.
func (s Step) due() bool {
	return s.Action == Evict || s.Action == Delete
}

// leaveBehind lets the drain continue without the pod.
func (s *Step) leaveBehind(why string) {
	s.Action, s.Left, s.Why = Ignore, true, why
}

// compareSteps compares steps by their turn, then by name, so that equal states result in equal plans.
func compareSteps(a, b Step) int {
	return cmp.Or(
		cmp.Compare(a.turn, b.turn),
		cmp.Compare(a.priority, b.priority),
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

type planner struct {
	Input
	deadline deadline
}

// step decides about one pod as if its turn had come.
func (p *planner) step(pod *corev1.Pod) Step {
	s := Step{
		Pod:      types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		UID:      pod.UID,
		pod:      pod,
		turn:     turnOf(pod),
		priority: priority(pod),
		forced:   p.deadline.passed(grace(pod), p.Now),
	}
	owner := daemonSetOf(pod)
	switch {
	case isMirror(pod):
		s.Action, s.Why = Skip, "mirror pod, which ends with the node"
	case isFinished(pod):
		s.Action, s.Why = Ignore, "the pod has ended: "+string(pod.Status.Phase)
	case owner != nil && !p.Orphaned[owner.UID]:
		s.Action, s.Why = Skip, fmt.Sprintf("DaemonSet %q would create the pod again", owner.Name)
	case p.wouldReturn(pod):
		s.Action, s.Why = Skip, "its controller creates the pod again on the cordoned node"
	case p.deadline.over(p.Now) && pod.CreationTimestamp.After(p.Start):
		s.leaveBehind("created during the drain, whose deadline has passed")
	case isTerminating(pod):
		p.terminating(pod, &s)
	case s.forced:
		p.delete(&s, p.deadline.remaining(grace(pod), p.Now), "the drain deadline is near")
	default:
		p.evictable(pod, &s)
	}
	return s
}

// terminating decides about a pod that is terminating.
func (p *planner) terminating(pod *corev1.Pod, s *Step) {
	if !p.NodeReachable {
		s.leaveBehind("terminating on an unreachable node, whose kubelet cannot confirm that the pod has ended")
		return
	}
	ends := pod.DeletionTimestamp.Time
	if stuckAt, ok := p.stuck(ends); ok && !p.Now.Before(stuckAt) {
		s.leaveBehind("terminating on a node that is not Ready, whose kubelet does not end the pod")
		return
	}
	if goneAt, ok := p.deadline.countsAsGoneAt(ends); ok && !p.Now.Before(goneAt) {
		s.leaveBehind("still terminating after the drain deadline")
		return
	}

	// If the pod has no grace period, or one of 0, a second deletion would remove the pod at once.
	var given time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil && *seconds > 0 {
		given = boundedGrace(*seconds)
	}
	left := p.deadline.remaining(given, p.Now)
	if moment, ok := p.deadline.moment(given); ok && ends.After(p.deadline.end) && left < int64(given/time.Second) {
		if !p.Now.Before(moment) {
			p.delete(s, left, "its grace period ends after the drain deadline")
			return
		}
		s.dueAt = moment
	}

	s.Action, s.Why = Await, "terminating"
	if since := ends.Add(-given); p.Now.Sub(since) >= slowTermination {
		s.Slow = true
		s.Why = "terminating since " + since.UTC().Format(time.RFC3339)
	}
}

// stuck returns when a pod on a node that is not Ready counts as gone. The pod should have ended at the given time. The
// drain must have lasted for NotReadyPatience too: its start is measured with our own clock and moves with outages.
func (p *planner) stuck(ends time.Time) (time.Time, bool) {
	if p.NotReadySince.IsZero() {
		return time.Time{}, false
	}
	since := ends
	for _, t := range []time.Time{p.NotReadySince, p.Start} {
		if t.After(since) {
			since = t
		}
	}
	return since.Add(NotReadyPatience), true
}

// delete decides to delete a pod, unless the previous attempt was just now. It leaves the pod behind if deletions have
// failed for deletePatience.
func (p *planner) delete(s *Step, grace int64, why string) {
	s.forced = true
	if try := p.Attempts[s.UID]; !try.Deleting.IsZero() {
		if p.deadline.over(p.Now) && !p.Now.Before(try.Deleting.Add(deletePatience)) {
			s.leaveBehind("the pod cannot be deleted: " + try.Why)
			return
		}
		if p.Now.Before(try.NotBefore) {
			s.Action, s.Why, s.dueAt = Block, "its deletion failed: "+try.Why, try.NotBefore
			return
		}
	}
	s.Action, s.Grace, s.Why = Delete, grace, why
}

// evictable decides about a pod that PodDisruptionBudgets still protect.
func (p *planner) evictable(pod *corev1.Pod, s *Step) {
	if try, tried := p.Attempts[s.UID]; tried && p.Now.Before(try.NotBefore) {
		s.Action, s.Why, s.dueAt = Block, try.Why, try.NotBefore
	} else {
		s.Action, s.Why = Evict, s.turn.whyEvicted()
		if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds == 0 {
			s.Grace = int64(minGrace / time.Second)
		}
	}
	if moment, ok := p.deadline.moment(grace(pod)); ok && (s.dueAt.IsZero() || moment.Before(s.dueAt)) {
		s.dueAt = moment
	}
}

// blockLaterTurns withdraws the evictions of pods whose turn comes after that of a pod that still exists. The times
// from which these pods are deleted still apply.
func (p *planner) blockLaterTurns(steps []Step) {
	i := slices.IndexFunc(steps, Step.pending)
	if i < 0 {
		return
	}
	first := steps[i].turn // The steps are sorted by turn.
	for i := range steps {
		if s := &steps[i]; s.turn > first && s.Action == Evict {
			s.Action, s.Grace, s.Why = Block, 0, s.turn.whyBlocked()
		}
	}
}

// nextCheck returns the time between two checks while pods are leaving, and the time of the next check.
func (p *planner) nextCheck(steps []Step) (recheck, next time.Duration) {
	recheck = min(max(2*p.RecheckAfter, minRecheck), maxRecheck)
	next = idleRecheck
	if slices.ContainsFunc(steps, Step.due) {
		recheck = minRecheck
	}
	for _, s := range steps {
		if s.due() || s.Action == Await {
			next = min(next, recheck)
		}
		if s.pending() && s.dueAt.After(p.Now) {
			next = min(next, s.dueAt.Sub(p.Now))
		}
	}
	return recheck, next
}

// blockers returns the pods that block the drain, sorted by name: pods whose eviction or deletion failed, and pods that
// are slow to terminate. Pods that are terminating normally, or that were not evicted yet, do not block the drain.
func blockers(steps []Step, attempts map[types.UID]Attempt) []Blocker {
	var all []Blocker
	for _, s := range steps {
		try, tried := attempts[s.UID]
		switch {
		case !s.pending():
		case s.Slow:
			all = append(all, Blocker{s.Pod, s.UID, Attempt{Why: s.Why}})
		case tried && s.Action != Await:
			all = append(all, Blocker{s.Pod, s.UID, try})
		}
	}
	slices.SortFunc(all, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return all
}
