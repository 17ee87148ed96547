package disruption

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// ReasonOf returns the reason of a machine's disruption. A machine is disrupted while it is being deleted, rebooted or
// updated in place. For all other machines, the second result is false. The second result is also false for a machine
// without a Node or instance, and for a machine with a delete mark.
//
// The API does not record why a machine is deleted. Therefore a machine that an administrator deletes counts as
// disrupted until its Machine object is removed.
func ReasonOf(m *v1beta1.Machine) (v1beta1.DisruptionReason, bool) {
	switch {
	case !MayRunPods(m):
		return "", false
	case !machinestate.IsLive(m):
		if machinestate.MarkedForDeletion(m) {
			return "", false
		}
		return reasonOfDeletion(m), true
	case machinestate.IsRebootOpen(m) && !machinestate.NeedsReboot(m) && !machinestate.ToBeReplaced(m):
		return v1beta1.DisruptionRemediation, true
	case handover.Updating(m) && !(handover.UpdateRejected(m) && machinestate.IsReady(m)):
		return v1beta1.DisruptionInPlaceUpdate, true
	}
	return "", false
}

// MayRunPods reports whether pods may run on the machine: it has a Node, and its instance is not known to be gone.
func MayRunPods(m *v1beta1.Machine) bool {
	return m.Status.NodeRef != nil && !machinestate.HasVanished(m)
}

func reasonOfDeletion(m *v1beta1.Machine) v1beta1.DisruptionReason {
	switch {
	case machinestate.ToBeReplaced(m) || machinestate.FailureOf(m) != "":
		return v1beta1.DisruptionRemediation
	case machinestate.HasReplaceAnnotation(m):
		return ReasonOfReplacement(m)
	}
	return v1beta1.DisruptionRollout
}

// ExpiredValue is the value of AnnotationReplace on a machine that is replaced because it is older than expireAfter.
const ExpiredValue = "expired"

// RebalanceValue is the value of AnnotationReplace on a machine that is replaced to restore the balance of its
// placement.
const RebalanceValue = "rebalance"

// ReasonOfReplacement returns the reason why a machine with AnnotationReplace is replaced.
func ReasonOfReplacement(m *v1beta1.Machine) v1beta1.DisruptionReason {
	switch m.Annotations[v1beta1.AnnotationReplace] {
	case ExpiredValue:
		return v1beta1.DisruptionExpiry
	case RebalanceValue:
		return v1beta1.DisruptionRebalance
	}
	return v1beta1.DisruptionReplace
}

// ExemptUntil returns the time until which the machine must not be disrupted, or the zero time for an exemption
// without end. ExemptUntil returns false for other machines.
func ExemptUntil(m *v1beta1.Machine, now time.Time) (until time.Time, exempt bool) {
	value, set := m.Annotations[v1beta1.AnnotationDoNotDisrupt]
	if !set {
		return time.Time{}, false
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, true // The annotation is meant to exempt the machine, even if its value is not a time.
	}
	return until, now.Before(until)
}

func exemptionText(m *v1beta1.Machine, until time.Time) string {
	if until.IsZero() {
		return fmt.Sprintf("machine %s has the annotation %s", m.Name, v1beta1.AnnotationDoNotDisrupt)
	}
	return fmt.Sprintf("machine %s has the annotation %s until %s", m.Name, v1beta1.AnnotationDoNotDisrupt,
		until.UTC().Format(time.RFC3339))
}

func brokenSince(m *v1beta1.Machine) time.Time {
	for _, kind := range []string{v1beta1.ConditionRemediationRequested, v1beta1.ConditionReady} {
		if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil {
			return c.LastTransitionTime.Time
		}
	}
	return m.CreationTimestamp.Time
}

// CompareBroken orders machines that must be replaced. Failed machines come first, because they do not recover. Next
// come the machines that have been broken for the longest time.
func CompareBroken(a, b *v1beta1.Machine) int {
	return cmp.Or(
		-machinestate.FalseFirst(machinestate.HasFailed(a), machinestate.HasFailed(b)),
		brokenSince(a).Compare(brokenSince(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// ReplacementSurge returns the number of machines that the set creates in addition to the deployment's replicas, in
// order to replace other machines.
func ReplacementSurge(set *v1beta1.MachineSet) int32 {
	n, err := strconv.ParseInt(set.Annotations[v1beta1.AnnotationExchangeSurge], 10, 32)
	if err != nil {
		return 0
	}
	return max(0, int32(n))
}
