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

// maxFailedMachines is how many failed machines the status describes.
const maxFailedMachines = 10

// Status returns the status of a set with the state s and the plan p. failure is why a machine could not be created or
// deleted just now; its reason is empty if nothing failed.
func Status(s State, p Plan, failure Reason) v1beta1.MachineSetStatus {
	status := *s.Set.Status.DeepCopy()
	status.Conditions = conditionlimit.Fleet.Apply(status.Conditions)
	if p.Settled() && !p.Postponed {
		// A deployment relies on it: the set does nothing any more because of an earlier generation.
		status.ObservedGeneration = s.Set.Generation
	}
	plain, others := s.sorted()
	n := int32(len(plain))
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = n, n, n, n, n
	deleting, labeled := 0, pairsOf(s.Set.Spec.Template.ObjectMeta.Labels)
	var unready []*v1beta1.Machine
	for _, m := range others {
		if !machinestate.Live(m) {
			deleting++
			continue
		}
		status.Replicas++
		if labeled.in(m.Labels) {
			status.FullyLabeledReplicas++
		}
		if machinestate.Ready(m) {
			status.ReadyReplicas++
		} else {
			unready = append(unready, m)
		}
		if machinestate.Available(m, s.Set.Spec.MinReadySeconds, s.Now) {
			status.AvailableReplicas++
		}
		if machinestate.UpToDate(m) {
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
		missing = 0 // It creates no more, and the garbage collector deletes its machines.
	}
	c.scaling(missing, deleting, s, p)
	c.machinesReady(missing, unready)
	if failure.Reason == "" {
		failure = p.CreationBlocked
	}
	if failure.Reason == "" {
		failure = s.Failing.problem()
	}
	c.problem(v1beta1.ConditionReplicaFailure, failure, v1beta1.ReasonNoFailure)
	c.problem(v1beta1.ConditionFrozen, p.Frozen, v1beta1.ReasonThawed)
	c.problem(v1beta1.ConditionAdoptionSkipped, unadopted(p), v1beta1.ReasonNothingToAdopt)
	return status
}

// conditions sets the conditions of a status.
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

// problem sets a condition that reports a problem. It is missing until the first problem.
func (c conditions) problem(condition string, problem Reason, over string) {
	switch {
	case problem.Reason != "":
		c.set(condition, true, problem.Reason, problem.Message)
	case meta.FindStatusCondition(c.status.Conditions, condition) != nil:
		c.set(condition, false, over, "")
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
			"Failed machines are not replaced yet, because their replacements failed too.")
	case missing == 0 && len(p.Denied) > 0:
		c.set(v1beta1.ConditionScalingUp, false, v1beta1.ReasonAtDesiredReplicas, deniedMessage(p.Denied))
	default:
		c.set(v1beta1.ConditionScalingUp, false, v1beta1.ReasonAtDesiredReplicas, "")
	}
	switch {
	case len(p.Blocked) > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, s.Availability.message(p.Blocked))
	case missing < 0 && len(p.Denied) > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, deniedMessage(p.Denied))
	case missing < 0 || deleting > 0:
		c.set(v1beta1.ConditionScalingDown, true, v1beta1.ReasonScalingDown, "")
	default:
		c.set(v1beta1.ConditionScalingDown, false, v1beta1.ReasonAtDesiredReplicas, "")
	}
}

// machinesReady names one machine only: a message with a count would change with every machine.
func (c conditions) machinesReady(missing int, unready []*v1beta1.Machine) {
	switch {
	case len(unready) > 0:
		m := first(unready, 1)[0]
		message := fmt.Sprintf("Machine %s is not Ready.", m.Name)
		if r := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); r != nil {
			message = wording.Brief(fmt.Sprintf("Machine %s is not Ready: %s: %s", m.Name, r.Reason, r.Message))
		}
		c.set(v1beta1.ConditionMachinesReady, false, v1beta1.ReasonMachinesNotReady, message)
	case missing > 0:
		c.set(v1beta1.ConditionMachinesReady, false, v1beta1.ReasonMachinesNotReady, "Machines are missing.")
	default:
		c.set(v1beta1.ConditionMachinesReady, true, v1beta1.ReasonAllMachinesReady, "")
	}
}

func unadopted(p Plan) Reason {
	switch p.UnadoptedReason {
	case "":
		return Reason{}
	case v1beta1.ReasonSetDeleting:
		return Reason{p.UnadoptedReason, "The set is being deleted and does not adopt what matches: " + namesOf(p.Unadopted)}
	}
	return Reason{p.UnadoptedReason, "The set has as many machines as it wants and does not adopt what matches: " +
		namesOf(p.Unadopted)}
}

// frozenBy says why a set with the freeze label is frozen: for the reason that the label names, or that the condition
// gave when the label was set, or because a person set the label.
func frozenBy(set *v1beta1.MachineSet, label string) Reason {
	const message = "The label " + v1beta1.LabelFreeze + " stops the creation of machines."
	was := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionFrozen)
	frozen := was != nil && was.Status == metav1.ConditionTrue
	switch label {
	case v1beta1.ReasonOvershoot, v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonMeltdown:
		if frozen && was.Reason == label {
			return Reason{label, was.Message}
		}
		return Reason{label, message}
	}
	if frozen {
		switch was.Reason {
		case v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonTargetCredentialsRefused,
			v1beta1.ReasonControlCredentialsRefused:
			// This process was stopped; that is not the reason of the label.
		default:
			return Reason{was.Reason, was.Message}
		}
	}
	return Reason{v1beta1.ReasonFrozenByLabel, message}
}

// failedMachines sums up the failed and unlaunchable machines, the newest failures first.
func failedMachines(machines []*v1beta1.Machine) []v1beta1.FailedMachine {
	var summaries []v1beta1.FailedMachine
	for _, m := range machines {
		launched := machinestate.Unlaunchable(m)
		switch {
		case !machinestate.Live(m):
		case machinestate.Failed(m):
			summaries = append(summaries, v1beta1.FailedMachine{
				Name: m.Name, Reason: string(m.Status.FailureReason), Message: wording.Brief(m.Status.FailureMessage),
				Time: brokenSince(m),
			})
		case launched != nil:
			summaries = append(summaries, v1beta1.FailedMachine{
				Name: m.Name, Reason: launched.Reason, Message: wording.Brief(launched.Message),
				Time: launched.LastTransitionTime.DeepCopy(),
			})
		}
	}
	slices.SortFunc(summaries, func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), cmp.Compare(a.Name, b.Name))
	})
	return summaries[:min(len(summaries), maxFailedMachines)]
}

// brokenSince is when the machine stopped being Ready or, if it has no such condition, the time of its last operation.
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
