// Package preservation defines which Machines are preserved for inspection, and which will be preserved next. The
// provider's process preserves a Machine, and the MachineSet waits for this. If the provider's process and the
// MachineSet used different definitions, a Machine would be deleted too early or never.
package preservation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// IsPreserved reports whether the Machine is preserved. A preserved Machine belongs to no MachineSet, even if it
// still has an owner reference.
func IsPreserved[M metav1.Object](m M) bool {
	_, preserved := m.GetAnnotations()[v1beta1.AnnotationPreservedUntil]
	return preserved
}

// EndTime returns the end time of a Machine's preservation.
func EndTime(m *v1beta1.Machine) (time.Time, error) {
	value := m.Annotations[v1beta1.AnnotationPreservedUntil]
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("metadata.annotations[%s] is %.64q, which is not a time such as 2030-01-31T12:00:00Z",
			v1beta1.AnnotationPreservedUntil, value)
	}
	return until, nil
}

// NeverBegan reports whether the preservation of a Machine has ended before it began: the time in the annotation has
// passed, but the Machine was never preserved. A Machine that was preserved has the condition Preserved. If this
// condition could not be written, the annotation preserved-from shows that the Machine was removed from its MachineSet.
func NeverBegan(m *v1beta1.Machine, now time.Time) bool {
	until, err := EndTime(m)
	_, taken := m.Annotations[v1beta1.AnnotationPreservedFrom]
	return err == nil && !until.After(now) && !taken &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPreserved)
}

// ValidationError explains why the value of the annotation machinist.dev/preserve is invalid. It returns "" if the
// value is valid or the annotation is missing.
func ValidationError(m *v1beta1.Machine) string {
	switch value, asked := m.Annotations[v1beta1.AnnotationPreserve]; {
	case !asked, value == v1beta1.PreserveNow, value == v1beta1.PreserveWhenFailed:
		return ""
	default:
		return fmt.Sprintf("metadata.annotations[%s] is %.64q; it must be %s or %s", v1beta1.AnnotationPreserve, value,
			v1beta1.PreserveNow, v1beta1.PreserveWhenFailed)
	}
}

// OverLimit reports whether the Machine is replaced and not preserved, because the limit is reached. The result stays
// true until the Machine is replaced or recovers, even if the preservation of other Machines ends earlier.
func OverLimit(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPreserved)
	return m.Annotations[v1beta1.AnnotationPreserve] == v1beta1.PreserveWhenFailed && c != nil && c.Status == "False" &&
		c.Reason == v1beta1.ReasonTooManyPreserved && replacedForFailure(m)
}

// SameOrigin reports whether two Machines have the same Origin.
func SameOrigin(a, b *v1beta1.Machine) bool {
	from := Origin(a)
	return a.Namespace == b.Namespace && from != "" && from == Origin(b)
}

// Origin returns the kind and name of the current or former owner of the Machine, or "" if it never had an owner.
func Origin(m *v1beta1.Machine) string {
	if name := m.Labels[v1beta1.LabelMachineDeployment]; name != "" {
		return "MachineDeployment " + name
	}
	name := m.Labels[v1beta1.LabelMachineSet]
	if name == "" {
		name = m.Annotations[v1beta1.AnnotationPreservedFrom]
	}
	if name == "" {
		return ""
	}
	return "MachineSet " + name
}

// MustPreserve reports whether the Machine must be preserved, but is not preserved yet. A Machine without an instance
// is not preserved, because there is nothing to inspect.
func MustPreserve(m *v1beta1.Machine) bool {
	switch m.Annotations[v1beta1.AnnotationPreserve] {
	case v1beta1.PreserveNow:
	case v1beta1.PreserveWhenFailed:
		if !replacedForFailure(m) || OverLimit(m) {
			return false
		}
	default:
		return false
	}
	return machinestate.IsLive(m) && !IsPreserved(m) && m.Status.Instance != nil && !m.IsReplacing() && !m.Retrying() &&
		!machinestate.IsUnchangeable(m)
}

// replacedForFailure reports whether the MachineSet would replace the Machine now because it failed or is unhealthy.
// Other Machines must not be preserved, because the preservation would cause a replacement. The cloud will delete the
// instance of an interrupted Machine, so it cannot be preserved.
func replacedForFailure(m *v1beta1.Machine) bool {
	return machinestate.FailedOrUnhealthy(m) && !machinestate.ReplacementExempt(m)
}
