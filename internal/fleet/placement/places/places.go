// Package places reads where the machines of a deployment with spec.placement are, and which classes have capacity.
// Package placement decides from these facts.
package places

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Of returns the place of a machine. The domain is that of the first placement that contains the class of the
// machine, or empty if none does.
func Of(m *v1beta1.Machine, placements ...*v1beta1.Placement) placement.Choice {
	if m.Spec.ClassRef == nil {
		return placement.Choice{}
	}
	c := placement.Choice{ClassName: m.Spec.ClassRef.Name}
	for _, p := range placements {
		if c.Domain = p.DomainOf(c.ClassName); c.Domain != "" {
			break
		}
	}
	return c
}

// Pending reports whether the machine has no instance and may create one.
func Pending(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID == "" && machinestate.IsLive(m) && !machinestate.HasFailed(m) &&
		!machinestate.IsUnchangeable(m) && machinestate.UnlaunchableCondition(m) == nil
}

// AwaitsCapacity reports whether the machine has no instance and no request for one, because the cloud has no capacity.
// Only then may the set change its class.
func AwaitsCapacity(m *v1beta1.Machine) bool {
	return machinestate.IsLive(m) && m.Spec.ProviderID == "" && m.Status.Launch != nil &&
		m.Status.Launch.Step == v1beta1.LaunchStepAwaitingCapacity && !machinestate.HasFailed(m) &&
		!machinestate.IsUnchangeable(m)
}

// CapacityOf returns what the status of the placement's classes says about their capacity. The result does not contain
// classes of which no problem is known.
func CapacityOf(ctx context.Context, reader client.Reader, namespace string,
	by *v1beta1.Placement) (map[string]placement.Capacity, error) {
	capacity := make(map[string]placement.Capacity)
	for _, name := range by.ClassNames() {
		c, err := CapacityOfClass(ctx, reader, namespace, name)
		if err != nil {
			return nil, err
		}
		if c != (placement.Capacity{}) {
			capacity[name] = c
		}
	}
	return capacity, nil
}

// CapacityOfClass returns what the status of a class says about its capacity.
func CapacityOfClass(ctx context.Context, reader client.Reader, namespace, name string) (placement.Capacity, error) {
	class := &v1beta1.MachineClass{}
	switch err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, class); {
	case apierrors.IsNotFound(err):
		return placement.Capacity{Missing: true}, nil
	case err != nil:
		return placement.Capacity{}, fmt.Errorf("get class %s of spec.placement: %w", name, err)
	case !class.DeletionTimestamp.IsZero():
		return placement.Capacity{Missing: true}, nil
	}
	known := placement.Capacity{Rejected: rejectionOf(class)}
	c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionCapacityAvailable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return known, nil
	}
	known.Exhausted, known.Since = true, c.LastTransitionTime.Time
	known.RetryTime = timeOrZero(class.Status.CapacityRetryTime)
	return known, nil
}

// rejectionOf returns the reason why the provider rejects the class, or "". A provider that cannot reach its cloud does
// not reject the class.
func rejectionOf(class *v1beta1.MachineClass) string {
	c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != class.Generation ||
		c.Reason == v1beta1.ReasonProviderUnavailable {
		return ""
	}
	return c.Reason
}

// MaxUnlaunchable is a limit for machines that cannot be launched because of their configuration. No more machines
// are created from the configuration of this number of such machines.
const MaxUnlaunchable = 3

// AddUnlaunchable marks the classes from which several of the machines of a set cannot be launched. The set creates no
// more machines of these classes.
func AddUnlaunchable(capacity map[string]placement.Capacity, machines []*v1beta1.Machine) {
	n := make(map[string]int)
	for _, m := range machines {
		c := machinestate.UnlaunchableCondition(m)
		// The condition of a machine that has just got the class is about its former class.
		if !machinestate.IsLive(m) || c == nil || c.ObservedGeneration < m.Generation || m.Spec.ClassRef == nil {
			continue
		}
		class := m.Spec.ClassRef.Name
		if n[class]++; n[class] == MaxUnlaunchable {
			known := capacity[class]
			if !known.Missing && known.Rejected == "" {
				known.Rejected = c.Reason
			}
			known.Missing = true
			capacity[class] = known
		}
	}
}

// CapacityChanged passes events that may change which classes a placement can use.
func CapacityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1beta1.MachineClass)
		is, also := e.ObjectNew.(*v1beta1.MachineClass)
		return !ok || !also || !sameCapacity(was, is)
	}}
}

func sameCapacity(was, is *v1beta1.MachineClass) bool {
	before := meta.FindStatusCondition(was.Status.Conditions, v1beta1.ConditionCapacityAvailable)
	after := meta.FindStatusCondition(is.Status.Conditions, v1beta1.ConditionCapacityAvailable)
	return was.DeletionTimestamp.IsZero() == is.DeletionTimestamp.IsZero() && sameStatus(before, after) &&
		rejectionOf(was) == rejectionOf(is) &&
		timeOrZero(was.Status.CapacityRetryTime).Equal(timeOrZero(is.Status.CapacityRetryTime))
}

func sameStatus(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status
}

func timeOrZero(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
