package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// minRecheck and maxRecheck are the minimum and the maximum time between two checks of a node while its pods are
	// terminating.
	minRecheck = time.Second
	maxRecheck = 5 * time.Second

	// idleRecheck is the maximum time between two checks of a node if no change is expected.
	idleRecheck = time.Minute

	// terminationLeeway is how long the drain waits for a terminating pod after both the deadline and the end of the pod's
	// grace period. The kubelet needs some time to stop the containers and to report that they have ended.
	terminationLeeway = 10 * time.Second

	slowTermination = time.Minute

	// completionRecheck is the maximum time between two checks of a node while the drain waits until a pod has ended.
	completionRecheck = 15 * time.Second

	// NotReadyPatience is how long the drain of a node that is not Ready waits for a terminating pod after its grace
	// period. If the container runtime has failed or a disk is read-only, the kubelet never ends the pod. By default,
	// Kubernetes also waits this long before it evicts the pods of such a node.
	NotReadyPatience = 5 * time.Minute

	// deletePatience is how long a failed deletion of a pod is retried. Afterwards, the drain continues without the pod.
	deletePatience = time.Minute
)

// Action is what happens to a pod in one pass.
type Action string

const (
	// ActionSkip means that the drain leaves the pod on the node. This action applies to pods that would return to
	// the same node, such as mirror pods and pods of a DaemonSet.
	ActionSkip Action = "skip"
	// ActionIgnore means that the drain does not wait for the pod, because the pod has ended, or because a wait would
	// never end.
	ActionIgnore Action = "ignore"
	// ActionWait means that the drain waits until the terminating pod is gone.
	ActionWait Action = "await"
	// ActionBlock means that the eviction of the pod is delayed, because other pods are evicted first, or because the
	// next attempt is due later.
	ActionBlock Action = "hold"
	// ActionAwaitCompletion means that the pod is not evicted, and that the drain waits until the pod has ended.
	ActionAwaitCompletion Action = "await completion"
	// ActionEvict means that the drain asks the API server to evict the pod if its PodDisruptionBudgets allow it.
	ActionEvict Action = "evict"
	// ActionDelete means that the drain deletes the pod regardless of PodDisruptionBudgets, or shortens the grace
	// period of a terminating pod.
	ActionDelete Action = "delete"
)

// Input describes the drain of a node at one point in time.
type Input struct {
	// Pods are all pods of the node.
	Pods []corev1.Pod
	// Now contains the current time, for which Plan decides.
	Now time.Time
	// Start and Deadline are the start and the deadline of the drain. Without a Deadline, PodDisruptionBudgets are
	// respected without a time limit.
	Start, Deadline time.Time
	// NodeReachable is false if the node's kubelet no longer updates the status of the node. The API server then cannot
	// learn that a pod has ended.
	NodeReachable bool
	// NotReadySince is the time at which the kubelet began to report that the node is not Ready. NotReadySince is
	// zero if the node is Ready, or if the time is unknown.
	NotReadySince time.Time
	// OrphanedDaemonSets contains the UIDs of DaemonSets that no longer exist. The pods of these DaemonSets are
	// evicted like all other pods, because no controller would create them again.
	OrphanedDaemonSets map[types.UID]bool
	// Successors contains pods that replaced an evicted pod of the same controller on the same node. The key is the UID
	// of the new pod. The value is the time between the eviction and the first check that found the new pod.
	Successors map[types.UID]time.Duration
	// Attempts contains the results of earlier attempts, by the UID of the pod.
	Attempts map[types.UID]Attempt
	// Policy is spec.drain of the machine, or nil.
	Policy *v1beta1.MachineDrain
	// Namespaces contains the labels of the pods' namespaces, if a rule selects namespaces.
	Namespaces map[string]labels.Set
	// UnusedVolumes contains volumes that are attached to the node although no pod on the node uses them, if pods with
	// volumes are evicted one at a time. The volume that has been unused for the longest time comes first.
	UnusedVolumes []UnusedVolume
	// VolumesUnknown is true if UnusedVolumes could not be determined yet. If the controller has no permission to read
	// the volumes, VolumesDenied contains the error.
	VolumesUnknown bool
	VolumesDenied  string
	// VolumeDetachTimeout is the maximum time for which the eviction of the next pod waits for an unused volume.
	VolumeDetachTimeout time.Duration
	// RecheckAfter is the delay that the previous plan returned in Decision.RecheckAfter. For the first plan, the delay
	// is 0.
	RecheckAfter time.Duration
}

// Attempt describes the failed attempts to evict or to delete a pod that still exists.
type Attempt struct {
	// Failures is the number of failed attempts, and FirstFailure is the time of the first failed attempt.
	Failures     int
	FirstFailure time.Time
	// NotBefore is the earliest time of the next attempt.
	NotBefore time.Time
	// FirstDeletion contains the time of the first attempt to delete the pod. The time is zero if only evictions were
	// sent.
	FirstDeletion time.Time
	// UnansweredAction is the last action that got no answer from the API server. The next call for the same action
	// may take long.
	UnansweredAction Action
	// IsRefused is true if a PodDisruptionBudget refuses the eviction. Budgets contains the names of the
	// PodDisruptionBudgets that select the pod, if the controller could read them.
	IsRefused bool
	Budgets   []string
	// NeverAllowed is true if the budgets can never allow the eviction unless a user changes them.
	NeverAllowed bool
	// Explanation is a text that tells users why the last attempt failed.
	Explanation string
}

// Decision is what to do with the pods of a node now.
type Decision struct {
	// Steps contains one entry per pod, in the order of execution.
	Steps []Step
	// IsDone is true if there is no pod left to wait for.
	IsDone bool
	// IsForced is true if the deadline is so near that at least one remaining pod must be deleted, or was already
	// deleted.
	IsForced bool
	// RecheckAfter is the time between two checks while pods are terminating. The caller stores it for the next Input.
	RecheckAfter time.Duration
	// NextCheck is the time until the next check. The field is 0 if the drain is done.
	NextCheck time.Duration
}

// Step is the planned action for one pod.
type Step struct {
	Pod types.NamespacedName
	UID types.UID
	// Action is what to do with the pod.
	Action Action
	// Grace is the grace period for ActionDelete in seconds, at least 1. For ActionEvict, 0 means the pod's own grace
	// period.
	Grace int64
	// Explanation is a text that explains the action to users.
	Explanation string
	// IsSlow is true if the pod has been terminating for a long time.
	IsSlow bool
	// IsAbandoned is true if the drain no longer waits for the pod, although the pod may still be running.
	IsAbandoned bool

	// Rule names the rule or the label that defines how the drain treats the pod. It is empty if there is none.
	Rule string

	pod           *corev1.Pod
	order         int32
	turn          turn
	priority      int32
	forced        bool // The pod is deleted now instead of evicted.
	awaitsVolumes bool // The eviction waits for another pod with volumes, or for its volumes.
	// dueAt is the time at which the next check of the pod is needed. The time is zero if no check is planned.
	dueAt time.Time
}

// Blocker is a pod that blocks a drain.
type Blocker struct {
	Pod types.NamespacedName
	UID types.UID
	// Rule names the rule or the label because of which the drain waits until the pod has ended.
	Rule string
	// Attempt describes the failed attempts to evict or delete the pod. If no attempt failed, but the drain waits for the
	// pod for a long time or because of a rule, only the field Explanation is set.
	Attempt
}

// Plan decides what happens to each pod of a node that is being drained.
//
// Plan skips pods that are bound to their node: mirror pods, pods of a DaemonSet that exists, and successors that
// return to the node. Plan ignores pods that have ended. The rules of Input.Policy decide about the other pods. Plan
// evicts pods with a lower order first. Among pods with the same order, Plan evicts workload pods first, critical pods
// when no workload pod is left, and pods that tolerate the cordon last.
//
// PodDisruptionBudgets are respected until deadline − min(grace, length of the drain / 2). From this time on, Plan
// deletes the pod even if other pods should be evicted first. The grace period is the rest of the original one, at
// least one second. The drain waits for deleted pods until shortly after the deadline.
func Plan(in Input) Decision {
	p := planner{Input: in, deadline: deadline{start: in.Start, end: in.Deadline},
		rules: compileRules(in.Policy)}
	d := Decision{Steps: make([]Step, 0, len(in.Pods))}
	for i := range in.Pods {
		d.Steps = append(d.Steps, p.step(&in.Pods[i]))
	}
	slices.SortStableFunc(d.Steps, compareSteps)
	p.blockLaterTurns(d.Steps)
	p.blockVolumePods(d.Steps)

	d.IsDone = !slices.ContainsFunc(d.Steps, Step.pending)
	d.IsForced = slices.ContainsFunc(d.Steps, func(s Step) bool { return s.forced && s.pending() })
	if !d.IsDone {
		d.RecheckAfter, d.NextCheck = p.nextCheck(d.Steps)
	}
	return d
}

func (s Step) pending() bool {
	return s.Action != ActionSkip && s.Action != ActionIgnore
}

func (s Step) due() bool {
	return s.Action == ActionEvict || s.Action == ActionDelete
}

func (s *Step) leaveBehind(why string) {
	s.Action, s.IsAbandoned, s.Explanation = ActionIgnore, true, why
}

// compareSteps compares steps by their order, by their turn and then by name, so that the same state always results in
// the same plan.
func compareSteps(a, b Step) int {
	return cmp.Or(
		cmp.Compare(a.order, b.order),
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
	rules    []compiledRule
}

// step decides what happens to one pod. The method assumes that all pods of earlier turns are gone.
func (p *planner) step(pod *corev1.Pod) Step {
	s := Step{
		Pod:      types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		UID:      pod.UID,
		pod:      pod,
		turn:     turnOf(pod),
		priority: priority(pod),
		forced:   p.deadline.isDeletionTime(grace(pod), p.Now),
	}
	treatment := treatmentOf(pod, p.rules, p.Namespaces)
	s.order, s.Rule = treatment.order, treatment.source
	owner := daemonSetOf(pod)
	switch {
	case isMirror(pod):
		s.Action, s.Explanation = ActionSkip, "mirror pod, which ends with the node"
	case isFinished(pod):
		s.Action, s.Explanation = ActionIgnore, "the pod has ended: "+string(pod.Status.Phase)
	case owner != nil && !p.OrphanedDaemonSets[owner.UID]:
		s.Action, s.Explanation = ActionSkip, fmt.Sprintf("DaemonSet %q would create the pod again", owner.Name)
	case p.wouldReturn(pod):
		s.Action, s.Explanation = ActionSkip, "its controller creates the pod again on the cordoned node"
	case treatment.behavior == v1beta1.DrainBehaviorSkip:
		s.Action, s.Explanation = ActionSkip, "skipped because of "+s.Rule
	case p.deadline.isOver(p.Now) && pod.CreationTimestamp.After(p.Start):
		s.leaveBehind("created after the drain began, and the drain deadline has passed")
	case isTerminating(pod):
		p.planTermination(pod, &s)
	case s.forced:
		p.planDeletion(&s, p.deadline.remainingGrace(grace(pod), p.Now), "the drain deadline is near")
	case treatment.behavior == v1beta1.DrainBehaviorWaitCompleted:
		s.Action, s.Explanation = ActionAwaitCompletion, "waits for the pod to complete: "+s.Rule
		s.dueAt = p.Now.Add(completionRecheck)
		p.checkAtDeletionTime(pod, &s)
	default:
		p.planEviction(pod, &s)
	}
	return s
}

func (p *planner) planTermination(pod *corev1.Pod, s *Step) {
	if !p.NodeReachable {
		s.leaveBehind("terminating on an unreachable node, whose kubelet cannot confirm that the pod has ended")
		return
	}
	ends := pod.DeletionTimestamp.Time
	if abandonAt, ok := p.abandonTime(ends); ok && !p.Now.Before(abandonAt) {
		s.leaveBehind("terminating on a node that is not Ready, whose kubelet does not end the pod")
		return
	}
	if goneAt, ok := p.deadline.countsAsGoneAt(ends); ok && !p.Now.Before(goneAt) {
		s.leaveBehind("still terminating after the drain deadline")
		return
	}

	// If the grace period of the pod is 0 or missing, a second deletion would remove the pod at once.
	var given time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil && *seconds > 0 {
		given = boundedGrace(*seconds)
	}
	left := p.deadline.remainingGrace(given, p.Now)
	if moment, ok := p.deadline.deletionTime(given); ok && ends.After(p.deadline.end) && left < int64(given/time.Second) {
		if !p.Now.Before(moment) {
			p.planDeletion(s, left, "the grace period of the pod ends after the drain deadline")
			return
		}
		s.dueAt = moment
	}

	s.Action, s.Explanation = ActionWait, "terminating"
	if since := ends.Add(-given); p.Now.Sub(since) >= slowTermination {
		s.IsSlow = true
		s.Explanation = "terminating since " + since.UTC().Format(time.RFC3339)
	}
}

// abandonTime returns the time from which the drain no longer waits for a terminating pod on a node that is not Ready.
// The argument is the time at which the grace period of the pod ends. In addition, the drain must have lasted for at
// least the duration NotReadyPatience. Only the start of the drain is measured with the clock of this process. The
// other times come from other clocks, which may be wrong.
func (p *planner) abandonTime(ends time.Time) (time.Time, bool) {
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

// planDeletion deletes a pod, unless the next attempt is not due yet. If deletions have failed for deletePatience, the
// drain continues without the pod.
func (p *planner) planDeletion(s *Step, grace int64, why string) {
	s.forced = true
	if try := p.Attempts[s.UID]; !try.FirstDeletion.IsZero() {
		if p.deadline.isOver(p.Now) && !p.Now.Before(try.FirstDeletion.Add(deletePatience)) {
			s.leaveBehind("the pod cannot be deleted: " + try.Explanation)
			return
		}
		if p.Now.Before(try.NotBefore) {
			s.Action, s.Explanation, s.dueAt = ActionBlock, "its deletion failed: "+try.Explanation, try.NotBefore
			return
		}
	}
	s.Action, s.Grace, s.Explanation = ActionDelete, grace, why
}

func (p *planner) planEviction(pod *corev1.Pod, s *Step) {
	if try, tried := p.Attempts[s.UID]; tried && p.Now.Before(try.NotBefore) {
		s.Action, s.Explanation, s.dueAt = ActionBlock, try.Explanation, try.NotBefore
	} else {
		s.Action, s.Explanation = ActionEvict, s.turn.whyEvicted()
		if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds == 0 {
			s.Grace = int64(minGrace / time.Second)
		}
	}
	p.checkAtDeletionTime(pod, s)
}

// checkAtDeletionTime plans the next check of a pod no later than the time from which the pod is deleted.
func (p *planner) checkAtDeletionTime(pod *corev1.Pod, s *Step) {
	if moment, ok := p.deadline.deletionTime(grace(pod)); ok && (s.dueAt.IsZero() || moment.Before(s.dueAt)) {
		s.dueAt = moment
	}
}

// blockLaterTurns blocks pods that must wait until all pods with a lower order or an earlier turn are gone. These pods
// are still deleted when the deadline is near.
func (p *planner) blockLaterTurns(steps []Step) {
	i := slices.IndexFunc(steps, Step.pending)
	if i < 0 {
		return
	}
	first := steps[i] // The steps are sorted by order and turn.
	for i := range steps {
		s := &steps[i]
		switch {
		case s.Action != ActionEvict:
		case s.order > first.order:
			s.Action, s.Grace = ActionBlock, 0
			s.Explanation = fmt.Sprintf("order %d: pods with the order %d must be gone first", s.order, first.order)
		case s.turn > first.turn:
			s.Action, s.Grace, s.Explanation = ActionBlock, 0, s.turn.whyBlocked()
		}
	}
}

func (p *planner) nextCheck(steps []Step) (recheck, next time.Duration) {
	recheck = min(max(2*p.RecheckAfter, minRecheck), maxRecheck)
	next = idleRecheck
	if slices.ContainsFunc(steps, Step.due) {
		recheck = minRecheck
	}
	for _, s := range steps {
		if s.due() || s.Action == ActionWait || s.awaitsVolumes {
			next = min(next, recheck)
		}
		if s.pending() && s.dueAt.After(p.Now) {
			next = min(next, s.dueAt.Sub(p.Now))
		}
	}
	return recheck, next
}

// blockers returns the pods that block the drain, sorted by name. A pod blocks the drain if its eviction or deletion
// failed, if it is slow to terminate, if a volume blocks its eviction for a long time, or if the drain waits until it
// has ended.
func blockers(steps []Step, attempts map[types.UID]Attempt) []Blocker {
	var all []Blocker
	for _, s := range steps {
		try, tried := attempts[s.UID]
		switch {
		case !s.pending():
		case s.Action == ActionAwaitCompletion:
			all = append(all, Blocker{s.Pod, s.UID, s.Rule, Attempt{Explanation: s.Explanation}})
		case s.IsSlow:
			all = append(all, Blocker{Pod: s.Pod, UID: s.UID, Attempt: Attempt{Explanation: s.Explanation}})
		case tried && s.Action != ActionWait:
			all = append(all, Blocker{Pod: s.Pod, UID: s.UID, Attempt: try})
		}
	}
	slices.SortFunc(all, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return all
}
