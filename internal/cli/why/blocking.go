package why

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// failedCondition is a condition type that does not exist in the API. Blocking uses it for machines with a
// failureReason.
const failedCondition = "Failed"

// Blocking returns the first obstacle of a machine as a condition. If an obstacle is not in the conditions of the
// machine, the result is a condition made from other fields, such as failureReason. Blocking returns nil if the machine
// runs, is up to date, and is not paused, preserved or about to be replaced.
func Blocking(m *v1beta1.Machine) *metav1.Condition {
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(m.Status.Conditions, kind) }
	isTrue := func(kind string) bool { c := find(kind); return c != nil && c.Status == metav1.ConditionTrue }
	isFalse := func(kind string) bool { c := find(kind); return c != nil && c.Status == metav1.ConditionFalse }
	if m.DeletionTimestamp != nil {
		return deletionCondition(m, find(v1beta1.ConditionDeleting), find(v1beta1.ConditionDrained))
	}
	if machinestate.IsPaused(m) {
		c := metav1.Condition{Type: v1beta1.ConditionPaused, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonPausedByAnnotation}
		if found := find(v1beta1.ConditionPaused); found != nil && found.Status == metav1.ConditionTrue {
			c = *found
		}
		return &c
	}
	if until, preserved := m.Annotations[v1beta1.AnnotationPreservedUntil]; preserved {
		if isTrue(v1beta1.ConditionPreserved) {
			return find(v1beta1.ConditionPreserved)
		}
		return &metav1.Condition{Type: v1beta1.ConditionPreserved, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonPreserved, Message: "The machine is kept until " + until + "."}
	}
	if reason := string(m.Status.FailureReason); reason != "" {
		c := &metav1.Condition{Type: failedCondition, Status: metav1.ConditionTrue, Reason: reason,
			Message: m.Status.FailureMessage}
		if last := m.Status.LastOperation; last != nil && last.LastUpdateTime != nil {
			c.LastTransitionTime = *last.LastUpdateTime
		}
		return c
	}
	if isTrue(v1beta1.ConditionInterruptionNotice) {
		return find(v1beta1.ConditionInterruptionNotice)
	}
	if isTrue(v1beta1.ConditionRemediationRequested) {
		return find(v1beta1.ConditionRemediationRequested)
	}
	if m.Status.Phase == v1beta1.MachineUpdating && isFalse(v1beta1.ConditionUpToDate) {
		return find(v1beta1.ConditionUpToDate)
	}
	for _, kind := range []string{v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy} {
		c := find(kind)
		if c == nil || c.Reason == v1beta1.ReasonNoTargetCluster {
			continue
		}
		if c.Status != metav1.ConditionTrue || c.Reason == v1beta1.ReasonWaitingForStartupTaints ||
			c.Reason == v1beta1.ReasonWaitingForReadinessGates ||
			c.Reason == v1beta1.ReasonInvalidConfiguration {
			return c
		}
	}
	if isFalse(v1beta1.ConditionUpToDate) {
		return find(v1beta1.ConditionUpToDate)
	}
	if !isTrue(v1beta1.ConditionReady) {
		c := metav1.Condition{Type: v1beta1.ConditionReady, Reason: v1beta1.ReasonPending,
			LastTransitionTime: m.CreationTimestamp}
		if found := find(v1beta1.ConditionReady); found != nil {
			c = *found
		}
		return &c
	}
	if c := find(v1beta1.ConditionRemediationRequested); c != nil && c.Reason == v1beta1.ReasonRetriesExhausted {
		return c
	}
	return nil
}

// deletionCondition returns what a deletion waits for. The lastTransitionTime of the condition Deleting stays the same
// in all steps of a deletion. Therefore the start time of the current step is only known for the drain, which has its
// own condition.
func deletionCondition(m *v1beta1.Machine, reported, drained *metav1.Condition) *metav1.Condition {
	c := &metav1.Condition{
		Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonDeletionStarted,
		LastTransitionTime: *m.DeletionTimestamp,
	}
	if reported != nil {
		c.Reason, c.Message = reported.Reason, reported.Message
	}
	if drained != nil && isDrain(c.Reason) {
		c.LastTransitionTime = drained.LastTransitionTime
		if isDrain(drained.Reason) {
			c.Reason = drained.Reason // The reason of Drained is more specific than the reason of Deleting.
		}
	}
	return c
}

func isDrain(reason string) bool {
	switch reason {
	case v1beta1.ReasonDraining, v1beta1.ReasonBlockedByDisruptionBudget, v1beta1.ReasonWaitingForCompletion,
		v1beta1.ReasonDrainForced, v1beta1.ReasonDrainError:
		return true
	}
	return false
}

// Group describes the machines that wait for the same reason.
type Group struct {
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	// Explanation says in a sentence what the machines wait for.
	Explanation string `json:"explanation"`
	// Message is about the machine that has waited longest.
	Message string `json:"message,omitempty"`
	// Count is the number of machines. Oldest is the time when the longest wait began. Oldest is nil if the time is
	// unknown.
	Count  int        `json:"count"`
	Oldest *time.Time `json:"oldest,omitempty"`
	// Machines lists the names of the waiting machines. The machine that has waited longest comes first.
	Machines []string `json:"machines"`
}

// startDelay is how long a running process may need to start processing a machine.
const startDelay = time.Minute

// IsNormal reports whether the machines wait for a normal step such as booting, and not because of a problem.
func (g Group) IsNormal(now time.Time) bool {
	switch g.Reason {
	case v1beta1.ReasonPending, v1beta1.ReasonDeletionStarted:
		return g.Condition == v1beta1.ConditionLaunched || g.Oldest == nil || now.Sub(*g.Oldest) < startDelay
	case v1beta1.ReasonProvisioning, v1beta1.ReasonWaitingForNode, v1beta1.ReasonWaitingForStartupTaints,
		v1beta1.ReasonWaitingForReadinessGates, v1beta1.ReasonDraining, v1beta1.ReasonWaitingForCompletion,
		v1beta1.ReasonWaitingForVolumeDetach, v1beta1.ReasonInstanceTerminating, v1beta1.ReasonCreateSettling,
		v1beta1.ReasonInstanceDeleted, v1beta1.ReasonUpdating, v1beta1.ReasonReplacing:
		return true
	}
	return false
}

// Groups returns the waiting machines grouped by reason, with the largest group first. The function nameOf returns the
// name of a machine.
func Groups(machines []*v1beta1.Machine, nameOf func(*v1beta1.Machine) string) []Group {
	type waiting struct {
		name, message string
		since         time.Time
	}
	byReason := map[[2]string][]waiting{}
	for _, m := range machines {
		if c := Blocking(m); c != nil {
			key := [2]string{c.Type, c.Reason}
			byReason[key] = append(byReason[key], waiting{nameOf(m), c.Message, c.LastTransitionTime.Time})
		}
	}
	groups := make([]Group, 0, len(byReason))
	for key, all := range byReason {
		slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name)) })
		g := Group{Condition: key[0], Reason: key[1], Explanation: MeaningOf(key[0], key[1]).Explanation,
			Message: all[0].message, Count: len(all)}
		for _, w := range all {
			if g.Oldest == nil {
				g.Oldest = inUTC(w.since)
			}
			g.Machines = append(g.Machines, w.name)
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Condition, b.Condition), cmp.Compare(a.Reason, b.Reason))
	})
	return groups
}
