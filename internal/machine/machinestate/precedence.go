package machinestate

import (
	"cmp"
	"strconv"

	"machinist.dev/machinist/api/v1beta1"
)

// Precedence determines which machine a MachineSet deletes first if it has too many machines. The machine with the
// lower precedence is deleted first. If the precedence is equal, the delete policy decides.
type Precedence struct {
	// The fields are ordered by importance.
	unmarked     bool
	notReplaced  bool // without AnnotationReplace
	healthy      bool // not ToBeReplaced
	launched     bool
	notUnhealthy bool // not in the phase Unhealthy
	priority     int
	ready        bool
}

// PrecedenceOf returns the precedence of a machine.
func PrecedenceOf(m *v1beta1.Machine) Precedence {
	return Precedence{
		unmarked:     !MarkedForDeletion(m),
		notReplaced:  !HasReplaceAnnotation(m),
		healthy:      !ToBeReplaced(m),
		launched:     m.Spec.ProviderID != "",
		notUnhealthy: m.Status.Phase != v1beta1.MachineUnhealthy,
		priority:     deletePriority(m),
		ready:        IsReady(m),
	}
}

// Compare returns a negative number if the machine with precedence p is deleted before the other machine. It returns a
// positive number if the other machine is deleted first.
func (p Precedence) Compare(other Precedence) int {
	return cmp.Or(
		FalseFirst(p.unmarked, other.unmarked),
		FalseFirst(p.notReplaced, other.notReplaced),
		FalseFirst(p.healthy, other.healthy),
		FalseFirst(p.launched, other.launched),
		FalseFirst(p.notUnhealthy, other.notUnhealthy),
		cmp.Compare(p.priority, other.priority),
		FalseFirst(p.ready, other.ready),
	)
}

// WithoutDetails returns the precedence without details that may soon change. For example, a machine may be launched
// or become Ready before the MachineSet acts. With this precedence, a MachineDeployment predicts which machine its
// MachineSet will delete.
func (p Precedence) WithoutDetails() Precedence {
	switch {
	case !p.unmarked:
		return Precedence{}
	case !p.notReplaced:
		return Precedence{unmarked: true}
	case !p.healthy:
		return Precedence{unmarked: true, notReplaced: true}
	case !p.launched:
		return Precedence{unmarked: true, notReplaced: true, healthy: true}
	case !p.notUnhealthy:
		return Precedence{unmarked: true, notReplaced: true, healthy: true, launched: true}
	}
	return p
}

// FalseFirst compares two booleans. Like the functions of package cmp, it returns a negative number if a comes first,
// that is, if a is false and b is true.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// deletePriority returns the machine's delete priority. If the annotation is missing or is not a 32-bit integer, it
// returns the default.
func deletePriority(m *v1beta1.Machine) int {
	value, set := m.Annotations[v1beta1.AnnotationDeletePriority]
	if !set {
		// Most machines have no annotation, and creating a parse error is expensive.
		return v1beta1.DefaultDeletePriority
	}
	priority, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return v1beta1.DefaultDeletePriority
	}
	return int(priority)
}
