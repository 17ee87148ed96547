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
	// firstRecheck and maxLook bound the time between two checks a node that pods are leaving.
	firstRecheck = time.Second
	maxRecheck   = 5 * time.Second

	// idleRecheck is the longest time between two checks a node where nothing is expected to happen.
	idleRecheck = time.Minute

	// linger is how long after the deadline, and after the end of its grace, a terminating pod is waited for: the
	// kubelet needs a moment to end the containers and to report it.
	linger = 10 * time.Second

	// slowToDetach is after how long a terminating pod is named as one that holds up the drain.
	slowToDetach = time.Minute

	// NotReadyPatience is how long a terminating pod is waited for, after the end of its grace, on a node that reports
	// and is not Ready: with a dead container runtime or a disk that is read-only its kubelet will never end it. It is
	// as long as Kubernetes leaves pods on such a node by default.
	NotReadyPatience = 5 * time.Minute

	// deletePatience is how long the deletion of a pod is tried, in vain, before the drain goes on without it.
	deletePatience = time.Minute
)

// Action is what happens to a pod in one pass.
type Action string

const (
	// Skip leaves the pod where it is, until its node goes: it is bound to the node.
	Skip Action = "skip"
	// Ignore takes no notice of the pod: it has ended, or nothing can be waited for.
	Ignore Action = "ignore"
	// Await waits for a terminating pod to leave.
	Await Action = "await"
	// Block does nothing to the pod yet: its turn comes later.
	Block Action = "hold"
	// Evict asks the API server to evict the pod, as far as PodDisruptionBudgets allow.
	Evict Action = "evict"
	// Delete deletes the pod whatever PodDisruptionBudgets say, or shortens the grace of one that is terminating.
	Delete Action = "delete"
)

// Input is what a plan is made from.
type Input struct {
	// Pods are all pods of the node.
	Pods []corev1.Pod
	// Now is the time of the plan.
	Now time.Time
	// Start and Deadline of the drain. A zero Deadline means that there is none: then PodDisruptionBudgets hold for ever.
	Start, Deadline time.Time
	// NodeReachable is false when the node's kubelet is silent: nobody can confirm the end of a pod there.
	NodeReachable bool
	// NotReadySince is since when the node's kubelet reports that the node is not Ready, zero if it does not.
	NotReadySince time.Time
	// Orphaned holds the UIDs of DaemonSets that no longer exist. Their pods are evicted like others, since nobody puts
	// them back.
	Orphaned map[types.UID]bool
	// Successors are pods that appeared on the node after a pod of the same controller was evicted from it, by their
	// UIDs, and how long after that they were first seen.
	Successors map[types.UID]time.Duration
	// Tries is what came of earlier attempts, by UID of the pod.
	Tries map[types.UID]Try
	// RecheckAfter is the Look of the previous decision, 0 at first.
	RecheckAfter time.Duration
}

// Try is what came of the attempts to evict or to delete a pod that is still there.
type Try struct {
	// Failures is the number of attempts in vain.
	Failures int
	// NotBefore is when to try again.
	NotBefore time.Time
	// Deleting is since when deletion, and no longer eviction, has been tried; zero before.
	Deleting time.Time
	// Refused is set when a PodDisruptionBudget refuses the eviction. Budgets are those that do, as far as they could be
	// found out.
	Refused bool
	Budgets []string
	// Never is set when those budgets, as they are, can never allow it.
	Never bool
	// Why the last attempt failed, for people.
	Why string
}

// Decision is what to do with the pods of a node now.
type Decision struct {
	// Steps has one entry per pod, in the order in which to act.
	Steps []Step
	// Done is true when no pod is left to wait for.
	Done bool
	// Forced is true when the deadline is so near that a pod that is still there is deleted, or was.
	Forced bool
	// RecheckAfter is the time between two checks while pods are leaving; it goes into the next Input.
	RecheckAfter time.Duration
	// Next is when to check again at the latest, 0 when done.
	Next time.Duration
	// Blocked are the pods that hold up the drain, in order of their names.
	Blocked []Blocker
}

// Step is what happens to one pod.
type Step struct {
	Pod types.NamespacedName
	UID types.UID
	// Action to take.
	Action Action
	// Grace in seconds for Delete, at least 1. For Evict, 0 leaves it to the pod.
	Grace int64
	// Why in words.
	Why string
	// Slow is true for a pod that has been terminating for a long time.
	Slow bool
	// Left is true for a pod that is ignored although it may still be running.
	Left bool

	turn     turn
	priority int32
	forced   bool // its moment has come
	// trigger is when something is due for this pod, zero if that depends on others.
	notify time.Time
}

// Blocker is a pod that holds up a drain.
type Blocker struct {
	Pod types.NamespacedName
	// Refused is set when a PodDisruptionBudget refuses its eviction. Budgets are the names of those that do, all in its
	// namespace, as far as they could be found out.
	Refused bool
	Budgets []string
	// Never is set when those budgets, as they are, can never allow the eviction.
	Never bool
	// Why in words.
	Why string
}

// Plan decides what happens to each pod of a node that is being drained.
//
// Pods that are bound to their node (mirror pods, those of a DaemonSet that exists, and successors that come back to
// the node) are skipped, those that have ended are ignored. Of the rest, workload pods are evicted first, critical ones
// when no workload pod is left, and pods that tolerate the cordon after all others.
// PodDisruptionBudgets hold until deadline − min(grace, deadline length / 2); from then a pod is deleted with what
// remains of its grace, at least a second, whether or not its turn has come. A pod that does not leave although it was
// reported to, is waited for until shortly after the deadline.
func Plan(in Input) Decision {
	p := planner{Input: in, deadline: deadline{start: in.Start, end: in.Deadline}}
	d := Decision{Steps: make([]Step, 0, len(in.Pods))}
	for i := range in.Pods {
		d.Steps = append(d.Steps, p.step(&in.Pods[i]))
	}
	slices.SortStableFunc(d.Steps, inTurn)
	p.blockLater(d.Steps)

	d.Done = !slices.ContainsFunc(d.Steps, Step.pending)
	d.Forced = slices.ContainsFunc(d.Steps, func(s Step) bool { return s.forced && s.pending() })
	if !d.Done {
		d.RecheckAfter, d.Next = p.pace(d.Steps)
	}
	d.Blocked = blockers(d.Steps, in.Tries)
	return d
}

// pending shows whether the drain waits for the pod of this step.
func (s Step) pending() bool {
	return s.Action != Skip && s.Action != Ignore
}

// leave lets the drain go on without the pod.
func (s *Step) leave(why string) {
	s.Action, s.Left, s.Why = Ignore, true, why
}

// inTurn orders steps by their turn, then by name, so that equal states make equal plans.
func inTurn(a, b Step) int {
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

// step decides about one pod as if it were its turn.
func (p *planner) step(pod *corev1.Pod) Step {
	s := Step{
		Pod:      types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		UID:      pod.UID,
		turn:     turnOf(pod),
		priority: priority(pod),
		forced:   p.deadline.passed(grace(pod), p.Now),
	}
	owner := daemonSetOf(pod)
	switch {
	case isMirror(pod):
		s.Action, s.Why = Skip, "mirror pod: it ends with the node"
	case isFinished(pod):
		s.Action, s.Why = Ignore, "it has ended: "+string(pod.Status.Phase)
	case owner != nil && !p.Orphaned[owner.UID]:
		s.Action, s.Why = Skip, fmt.Sprintf("the DaemonSet %q would put it back", owner.Name)
	case p.comesBack(pod):
		s.Action, s.Why = Skip, "its controller puts it back onto the cordoned node"
	case p.deadline.over(p.Now) && pod.CreationTimestamp.After(p.Start):
		s.leave("created after the drain began, whose deadline has passed")
	case isTerminating(pod):
		p.terminating(pod, &s)
	case s.forced:
		p.delete(&s, p.deadline.remaining(grace(pod), p.Now), "the deadline is near")
	default:
		p.evictable(pod, &s)
	}
	return s
}

// terminating decides about a pod that was asked to end.
func (p *planner) terminating(pod *corev1.Pod, s *Step) {
	if !p.NodeReachable {
		s.leave("terminating on an unreachable node: nobody can confirm its end")
		return
	}
	ends := pod.DeletionTimestamp.Time
	if stuckAt, ok := p.stuck(ends); ok && !p.Now.Before(stuckAt) {
		s.leave("terminating on a node that is not Ready: its kubelet cannot end it")
		return
	}
	if goneAt, ok := p.deadline.lingering(ends); ok && !p.Now.Before(goneAt) {
		s.leave("still terminating after the deadline")
		return
	}

	// A second deletion of a pod that has no grace period, or one of 0, would remove it at once.
	var given time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil && *seconds > 0 {
		given = boundedGrace(*seconds)
	}
	left := p.deadline.remaining(given, p.Now)
	if moment, ok := p.deadline.moment(given); ok && ends.After(p.deadline.end) && left < int64(given/time.Second) {
		if !p.Now.Before(moment) {
			p.delete(s, left, "its grace lasts beyond the deadline")
			return
		}
		s.notify = moment
	}

	s.Action, s.Why = Await, "terminating"
	if since := ends.Add(-given); p.Now.Sub(since) >= slowToDetach {
		s.Slow = true
		s.Why = "terminating since " + since.UTC().Format(time.RFC3339)
	}
}

// stuck returns when a pod that ought to have ended at the given time counts as gone, on a node that is not Ready.
// The drain itself must have lasted as long: its start is by our own clock, and moves with outages.
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

// delete decides to delete a pod, unless that was tried a moment ago, or in vain for so long that the drain goes on.
func (p *planner) delete(s *Step, grace int64, why string) {
	s.forced = true
	if try := p.Tries[s.UID]; !try.Deleting.IsZero() {
		if p.deadline.over(p.Now) && !p.Now.Before(try.Deleting.Add(deletePatience)) {
			s.leave("it cannot be deleted: " + try.Why)
			return
		}
		if p.Now.Before(try.NotBefore) {
			s.Action, s.Why, s.notify = Block, "its deletion failed: "+try.Why, try.NotBefore
			return
		}
	}
	s.Action, s.Grace, s.Why = Delete, grace, why
}

// evictable decides about a pod that PodDisruptionBudgets still protect.
func (p *planner) evictable(pod *corev1.Pod, s *Step) {
	if try, tried := p.Tries[s.UID]; tried && p.Now.Before(try.NotBefore) {
		s.Action, s.Why, s.notify = Block, try.Why, try.NotBefore
	} else {
		s.Action, s.Why = Evict, s.turn.evicted()
		if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds == 0 {
			s.Grace = int64(minGrace / time.Second)
		}
	}
	if moment, ok := p.deadline.moment(grace(pod)); ok && (s.notify.IsZero() || moment.Before(s.notify)) {
		s.notify = moment
	}
}

// blockLater takes back the evictions of pods whose turn comes after that of a pod that is there. Their moment holds.
func (p *planner) blockLater(steps []Step) {
	i := slices.IndexFunc(steps, Step.pending)
	if i < 0 {
		return
	}
	first := steps[i].turn // The steps are in turn.
	for i := range steps {
		if s := &steps[i]; s.turn > first && s.Action == Evict {
			s.Action, s.Grace, s.Why = Block, 0, s.turn.blocked()
		}
	}
}

// pace returns the time between two checks while pods are leaving, and when to look next.
func (p *planner) pace(steps []Step) (recheck, next time.Duration) {
	recheck = min(max(2*p.RecheckAfter, firstRecheck), maxRecheck)
	next = idleRecheck
	for _, s := range steps {
		if s.Action == Evict || s.Action == Delete {
			recheck = firstRecheck
		}
	}
	for _, s := range steps {
		switch s.Action {
		case Evict, Delete, Await:
			next = min(next, recheck)
		}
		if s.pending() && s.notify.After(p.Now) {
			next = min(next, s.notify.Sub(p.Now))
		}
	}
	return recheck, next
}

// blockers returns the pods that hold up the drain: those whose eviction or deletion failed, and those that are slow to
// leave. Pods that are leaving or have yet to be asked hold up nothing.
func blockers(steps []Step, tries map[types.UID]Try) []Blocker {
	var all []Blocker
	for _, s := range steps {
		try, tried := tries[s.UID]
		switch {
		case !s.pending():
		case s.Slow:
			all = append(all, Blocker{Pod: s.Pod, Why: s.Why})
		case tried && s.Action != Await:
			all = append(all, Blocker{
				Pod: s.Pod, Refused: try.Refused, Budgets: try.Budgets, Never: try.Never, Why: try.Why,
			})
		}
	}
	slices.SortFunc(all, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return all
}
