package machinedeployment

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machineset/handover"
)

// count says what a plan needs to know of a set from the set and its machines. wakeIn is the time until a machine
// becomes available by age alone, 0 if there is none.
func count(set *v1beta1.MachineSet, machines []*v1beta1.Machine, minReadySeconds int32, now time.Time) (counted Set, wakeIn time.Duration) {
	replicas := max(0, set.ReplicasOrDefault())
	counted = Set{Name: set.Name, Replicas: replicas, Least: replicas, Most: replicas, Leaving: !set.DeletionTimestamp.IsZero()}
	firstAvailable := int64(math.MaxInt64)
	var unavailable []int64
	if order, ok := handover.OrderOf(set.Annotations); ok {
		counted.MoveTo, counted.Moves, counted.BySelection = order.To, order.Machines, order.Selected
	}
	counted.Behind = set.Status.ObservedGeneration < set.Generation
	counted.ReceiveFrom = set.Annotations[v1beta1.AnnotationReceiveFrom]
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() {
			counted.Deleting++
			continue
		}
		counted.Live++
		if _, marked := m.Annotations[v1beta1.AnnotationDeleteMachine]; marked {
			counted.Marked++
		}
		if unhealthy(m) {
			counted.Unhealthy++
		}
		if handover.Selected(m) {
			counted.Selected++
			if !handover.Settled(m) {
				counted.SelectedIdle++
			}
		}
		ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionTrue {
			counted.Ready++
			left := ready.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now)
			if left <= 0 || minReadySeconds == 0 {
				counted.Available++
				if handover.Updating(m) {
					counted.Updating++
				}
				firstAvailable = min(firstAvailable, deletionRank(m, true))
				continue
			}
			wakeIn = sooner(wakeIn, left)
		}
		unavailable = append(unavailable, deletionRank(m, ready != nil && ready.Status == metav1.ConditionTrue))
	}
	for _, rank := range unavailable {
		if rank < firstAvailable {
			counted.Spare++
		}
	}
	return counted, wakeIn
}

// sooner returns the earlier of two delays, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// unhealthy reports whether the machine is to be replaced or in trouble.
func unhealthy(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineFailed || m.Status.Phase == v1beta1.MachineUnhealthy ||
		lost(m)
}

// lost reports whether the machine is to be replaced on grounds of its health, or its instance is about to be taken away.
func lost(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// deletionRank orders machines as their set deletes them when it is scaled down; of equal ranks any may go first. It is
// coarser than the set's own order, never contrary to it.
func deletionRank(m *v1beta1.Machine, ready bool) int64 {
	_, marked := m.Annotations[v1beta1.AnnotationDeleteMachine]
	switch {
	case marked:
		return 0
	case m.Status.Phase == v1beta1.MachineFailed, lost(m):
		return 1
	case m.Spec.ProviderID == "":
		return 2
	case m.Status.Phase == v1beta1.MachineUnhealthy:
		return 3
	}
	priority, err := strconv.ParseInt(m.Annotations[v1beta1.AnnotationDeletePriority], 10, 32)
	if err != nil {
		priority = v1beta1.DefaultDeletePriority
	}
	rank := 4 + 2*(priority-math.MinInt32)
	if ready {
		rank++
	}
	return rank
}
