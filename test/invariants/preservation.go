package invariants

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// PreservedUntil returns when the preservation of a machine ends, from the annotation that is documented for
// administrators. If the annotation is invalid, the time is zero. preserved is false for a machine without the
// annotation.
func PreservedUntil(m *v1beta1.Machine) (until time.Time, preserved bool) {
	value, preserved := m.Annotations[v1beta1.AnnotationPreservedUntil]
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, preserved
	}
	return until, preserved
}

// MustBePreserved reports whether a machine with an instance must be preserved, but is not yet: either a user has
// requested it, or the machine has failed and its set would replace it. Paused machines are not preserved.
func MustBePreserved(m *v1beta1.Machine) bool {
	_, preserved := PreservedUntil(m)
	if _, paused := m.Annotations[v1beta1.AnnotationPaused]; preserved || paused || !m.DeletionTimestamp.IsZero() {
		return false
	}
	switch m.Annotations[v1beta1.AnnotationPreserve] {
	case v1beta1.PreserveNow:
		return m.Status.Phase == v1beta1.MachineRunning
	case v1beta1.PreserveWhenFailed:
		_, exempt := m.Annotations[v1beta1.AnnotationSkipRemediation]
		return m.Status.Phase == v1beta1.MachineFailed && !exempt
	}
	return false
}
