package machinestate

import (
	"cmp"
	"strconv"

	"machinist.dev/machinist/api/v1beta1"
)

// Precedence says how early a set deletes a machine when there are too many: of two machines the lower one goes
// first. The set's delete policy chooses between equal ones.
type Precedence struct {
	// Most important first.
	unmarked    bool
	unexchanged bool // not Exchanged
	healthy     bool // not ToBeReplaced
	launched    bool
	untroubled  bool // not Unhealthy
	priority    int
	ready       bool
}

// PrecedenceOf returns the precedence of a machine.
func PrecedenceOf(m *v1beta1.Machine) Precedence {
	return Precedence{
		unmarked:    !MarkedForDeletion(m),
		unexchanged: !Exchanged(m),
		healthy:     !ToBeReplaced(m),
		launched:    m.Spec.ProviderID != "",
		untroubled:  m.Status.Phase != v1beta1.MachineUnhealthy,
		priority:    deletePriority(m),
		ready:       Ready(m),
	}
}

// Compare is negative if a machine of this precedence goes before one of the other, positive if after it.
func (p Precedence) Compare(other Precedence) int {
	return cmp.Or(
		FalseFirst(p.unmarked, other.unmarked),
		FalseFirst(p.unexchanged, other.unexchanged),
		FalseFirst(p.healthy, other.healthy),
		FalseFirst(p.launched, other.launched),
		FalseFirst(p.untroubled, other.untroubled),
		cmp.Compare(p.priority, other.priority),
		FalseFirst(p.ready, other.ready),
	)
}

// Coarse returns the precedence without what orders machines that go early for the same reason, such as those
// annotated for deletion. A deployment that predicts what its set will delete uses it: until the set acts, a machine
// may become Ready, or be launched.
func (p Precedence) Coarse() Precedence {
	switch {
	case !p.unmarked:
		return Precedence{}
	case !p.unexchanged:
		return Precedence{unmarked: true}
	case !p.healthy:
		return Precedence{unmarked: true, unexchanged: true}
	case !p.launched:
		return Precedence{unmarked: true, unexchanged: true, healthy: true}
	case !p.untroubled:
		return Precedence{unmarked: true, unexchanged: true, healthy: true, launched: true}
	}
	return p
}

// FalseFirst compares two booleans as functions of package cmp do: false goes before true.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// deletePriority is the default where the annotation is missing or no 32-bit integer.
func deletePriority(m *v1beta1.Machine) int {
	value, set := m.Annotations[v1beta1.AnnotationDeletePriority]
	if !set {
		return v1beta1.DefaultDeletePriority // Without the cost of an error for each machine.
	}
	priority, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return v1beta1.DefaultDeletePriority
	}
	return int(priority)
}
