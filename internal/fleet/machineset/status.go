package machineset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/wording"
)

const maxFailedMachines = 10

// Status returns the status of a set. failure is the reason why a creation or deletion of this pass failed, or empty.
func Status(s State, p Plan, failure ConditionReason) v1beta1.MachineSetStatus {
	status := *s.Set.Status.DeepCopy()
	status.Conditions = conditionlimit.Fleet.Apply(status.Conditions)
	if p.IsEmpty() && !p.IsPostponed {
		// The deployment relies on this: a set that observed a generation no longer acts on earlier generations.
		status.ObservedGeneration = s.Set.Generation
	}
	steady, others := s.splitSteady()
	n := int32(len(steady))
	status.Replicas, status.FullyLabeledReplicas, status.UpToDateReplicas = n, n, n
	status.ReadyReplicas, status.AvailableReplicas = n, n
	deleting, labeled := 0, pairsOf(s.Set.Spec.Template.ObjectMeta.Labels)
	var unready []*v1beta1.Machine
	for _, m := range others {
		if !machinestate.IsLive(m) {
			deleting++
			continue
		}
		status.Replicas++
		if labeled.containedIn(m.Labels) {
			status.FullyLabeledReplicas++
		}
		if machinestate.IsReady(m) {
			status.ReadyReplicas++
		} else {
			unready = append(unready, m)
		}
		if machinestate.IsAvailable(m, s.Set.Spec.MinReadySeconds, s.Now) {
			status.AvailableReplicas++
		}
		if machinestate.IsUpToDate(m) {
			status.UpToDateReplicas++
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(&s.Set.Spec.Selector); err == nil {
		status.Selector = selector.String()
	}
	status.FailedMachines = failedMachines(others)

	c := conditions{status: &status, generation: s.Set.Generation, now: s.Now}
	missing := int(s.Set.ReplicasOrDefault()) - int(status.Replicas)
	if !s.Set.DeletionTimestamp.IsZero() {
		missing = 0 // The set creates no more machines, and the garbage collector deletes the existing ones.
	}
	c.scaling(missing, deleting, s, p)
	c.machinesReady(missing, unready)
	c.balanced(s)
	if failure.Reason == "" {
		failure = p.CreationBlocked
	}
	if failure.Reason == "" {
		failure = s.FailureStreak.replicaFailure()
	}
	c.problem(v1beta1.ConditionReplicaFailure, failure, v1beta1.ReasonNoFailure)
	c.problem(v1beta1.ConditionFrozen, p.FreezeReason, v1beta1.ReasonThawed)
	c.problem(v1beta1.ConditionAdoptionSkipped, unadopted(p), v1beta1.ReasonNothingToAdopt)
	return status
}

type conditions struct {
	status     *v1beta1.MachineSetStatus
	generation int64
	now        time.Time
}

func (c conditions) set(condition string, truth bool, reason, message string) {
	status := metav1.ConditionFalse
	if truth {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&c.status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now),
	})
}

// problem sets a condition to True while a problem exists, and to False with the given reason after that. A condition
// that has never been True is not created.
func (c conditions) problem(condition string, problem ConditionReason, falseReason string) {
	switch {
	case problem.Reason != "":
		c.set(condition, true, problem.Reason, problem.Message)
	case meta.FindStatusCondition(c.status.Conditions, condition) != nil:
		c.set(condition, false, falseReason, "")
	}
}

func (c conditions) scaling(missing, deleting int, s State, p Plan) {
	switch {
	case missing > 0 && s.OverCapacity > 0:
		c.set(v1beta1.ConditionScalingUp, true, v1beta1.ReasonScalingUp, noCapacity)
	case missing > 0:
		c.set(v1beta1.ConditionScalingUp, true, v1beta1.ReasonScalingUp, "")
	case p.BackingOff:
		c.set(v1beta1.ConditionScalingUp, false, v1beta1.ReasonBackingOff,
			"Failed machines are not replaced yet, because earlier replacements failed too. The set tries again later.")
	case missing == 0 && len(p.Denials) > 0:
		c.set(v1beta1.ConditionScalingUp, false, v1beta1.ReasonAtDesiredReplicas, deniedMessage(p.Denials))
	default:
		c.set(v1beta1.ConditionScalingUp, false, v1beta1.ReasonAtDesiredReplicas, "")
	}
	switch {
	case len(p.BlockedDeletions) > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, s.Availability.message(p.BlockedDeletions))
	case missing < 0 && len(p.Denials) > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, deniedMessage(p.Denials))
	case missing < 0 || deleting > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, "")
	default:
		c.set(v1beta1.ConditionScalingDown, false, v1beta1.ReasonAtDesiredReplicas, "")
	}
}

// machinesReady sets the condition MachinesReady. The message names one unready machine but contains no number, so that
// the message does not change with every machine.
func (c conditions) machinesReady(missing int, unready []*v1beta1.Machine) {
	switch {
	case len(unready) > 0:
		m := firstByName(unready, 1)[0]
		message := fmt.Sprintf("Machine %s is not Ready.", m.Name)
		if r := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); r != nil {
			message = wording.Shorten(fmt.Sprintf("Machine %s is not Ready: %s: %s", m.Name, r.Reason, r.Message))
		}
		c.set(v1beta1.ConditionMachinesReady, false, v1beta1.ReasonMachinesNotReady, message)
	case missing > 0:
		c.set(v1beta1.ConditionMachinesReady, false, v1beta1.ReasonMachinesNotReady,
			"The set has fewer machines than replicas.")
	default:
		c.set(v1beta1.ConditionMachinesReady, true, v1beta1.ReasonAllMachinesReady, "")
	}
}

func unadopted(p Plan) ConditionReason {
	switch p.UnadoptedReason {
	case "":
		return ConditionReason{}
	case v1beta1.ReasonSetDeleting:
		return ConditionReason{p.UnadoptedReason,
			"The set is being deleted, so it does not adopt these matching machines: " + namesOf(p.UnadoptedOrphans)}
	}
	if p.UnadoptedReason == v1beta1.ReasonOtherClass {
		return ConditionReason{p.UnadoptedReason,
			"The classes of these matching machines are not in spec.placement, so the set does not adopt them: " +
				namesOf(p.UnadoptedOrphans)}
	}
	return ConditionReason{p.UnadoptedReason, "The set has enough machines, so it does not adopt these matching machines: " +
		namesOf(p.UnadoptedOrphans)}
}

// frozenBy returns why the freeze label is set: its value if that is a known reason, or else the reason of the
// condition Frozen, or FrozenByLabel.
func frozenBy(set *v1beta1.MachineSet, label string) ConditionReason {
	const message = "The label " + v1beta1.LabelFreeze + " stops the creation of machines."
	was := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionFrozen)
	frozen := was != nil && was.Status == metav1.ConditionTrue
	switch label {
	case v1beta1.ReasonOvershoot, v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonMeltdown:
		if frozen && was.Reason == label {
			return ConditionReason{label, was.Message}
		}
		return ConditionReason{label, message}
	}
	if frozen {
		switch was.Reason {
		case v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonTargetCredentialsRefused,
			v1beta1.ReasonControlCredentialsRefused:
			// The existing reason explains why the whole process was stopped, and not why the set has the label.
		default:
			return ConditionReason{was.Reason, was.Message}
		}
	}
	return ConditionReason{v1beta1.ReasonFrozenByLabel, message}
}

func failedMachines(machines []*v1beta1.Machine) []v1beta1.FailedMachine {
	var summaries []v1beta1.FailedMachine
	for _, m := range machines {
		launched := machinestate.UnlaunchableCondition(m)
		switch {
		case !machinestate.IsLive(m):
		case machinestate.HasFailed(m):
			summaries = append(summaries, v1beta1.FailedMachine{
				Name: m.Name, Reason: string(m.Status.FailureReason), Message: wording.Shorten(m.Status.FailureMessage),
				Time: brokenSince(m),
			})
		case launched != nil:
			summaries = append(summaries, v1beta1.FailedMachine{
				Name: m.Name, Reason: launched.Reason, Message: wording.Shorten(launched.Message),
				Time: launched.LastTransitionTime.DeepCopy(),
			})
		}
	}
	slices.SortFunc(summaries, func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), cmp.Compare(a.Name, b.Name))
	})
	return summaries[:min(len(summaries), maxFailedMachines)]
}

// brokenSince returns the time at which the machine stopped being Ready. If the condition Ready does not contain this
// time, it returns the time of the machine's last operation, which may be nil.
func brokenSince(m *v1beta1.Machine) *metav1.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.DeepCopy()
	}
	if m.Status.LastOperation != nil {
		return m.Status.LastOperation.LastUpdateTime.DeepCopy()
	}
	return nil
}

func timeOf(f v1beta1.FailedMachine) time.Time {
	if f.Time == nil {
		return time.Time{}
	}
	return f.Time.Time
}
