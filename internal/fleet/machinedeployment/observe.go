package machinedeployment

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// count summarizes a set and its machines for a plan. A Ready machine becomes available after minReadySeconds.
// requeueAfter is the time until the next machine becomes available in this way, or 0.
func count(set *v1beta1.MachineSet, machines []*v1beta1.Machine, inPlace bool, minReadySeconds int32,
	now time.Time) (counted Set, requeueAfter time.Duration) {
	replicas := max(0, set.ReplicasOrDefault())
	counted = Set{Name: set.Name, Replicas: replicas, MinReplicas: replicas, MaxReplicas: replicas,
		BeingDeleted: !set.DeletionTimestamp.IsZero()}
	if order, ok := handover.OrderOf(set.Annotations); ok {
		counted.MoveTo, counted.Moves = order.Receiver, order.Machines
		counted.BySelection, counted.ByClass = order.OnlySelected, order.OnlyKept
	}
	counted.IsUnobserved = set.Status.ObservedGeneration < set.Generation
	counted.ReplacementSurge = disruption.ReplacementSurge(set)
	counted.ReceiveFrom = set.Annotations[v1beta1.AnnotationReceiveFrom]
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() {
			counted.Deleting++
			continue
		}
		counted.Live++
		if machinestate.MarkedForDeletion(m) {
			counted.Marked++
		}
		if m.Spec.ProviderID == "" {
			counted.Unlaunched++
		}
		if isUnhealthy(m) {
			counted.Unhealthy++
		}
		if machinestate.HasReplaceAnnotation(m) {
			counted.MarkedForReplacement++
			if !machinestate.IsAvailable(m, minReadySeconds, now) {
				counted.UnavailableMarkedForReplacement++
			}
		}
		if handover.IsSelected(m) {
			counted.Selected++
			if !handover.Interrupts(m) {
				counted.SelectedIdle++
			}
		}
		left, ready := machinestate.AvailableIn(m, minReadySeconds, now)
		if ready {
			counted.Ready++
		}
		switch {
		case ready && left <= 0:
			counted.Available++
			if handover.Updating(m) {
				counted.Updating++
			}
		case ready:
			requeueAfter = sooner(requeueAfter, left)
		}
	}
	counted.Forecast = victims.ForecastOf(machines, func(m *v1beta1.Machine) bool {
		return machinestate.IsAvailable(m, minReadySeconds, now) && !(inPlace && handover.Updating(m))
	})
	return counted, requeueAfter
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// isUnhealthy reports whether the machine waits for remediation or is in the phase Unhealthy.
func isUnhealthy(m *v1beta1.Machine) bool {
	return machinestate.ToBeReplaced(m) || m.Status.Phase == v1beta1.MachineUnhealthy ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}
