// Package preservation defines which Machines are preserved for inspection, and which will be preserved next. The
// provider's process preserves a Machine, and the set that owns the Machine waits for this. If the provider and the set
// disagreed, a machine would be deleted too early or never.
package preservation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Preserved reports whether the Machine is preserved. A preserved Machine belongs to no set, even if it still has an
// owner reference.
func Preserved[M metav1.Object](m M) bool {
	_, preserved := m.GetAnnotations()[v1beta1.AnnotationPreservedUntil]
	return preserved
}

// Until returns the end of the preservation of a Machine.
func Until(m *v1beta1.Machine) (time.Time, error) {
	value := m.Annotations[v1beta1.AnnotationPreservedUntil]
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("metadata.annotations[%s] is %.64q, which is not a time such as 2030-01-31T12:00:00Z",
			v1beta1.AnnotationPreservedUntil, value)
	}
	return until, nil
}

// NeverBegan reports whether the annotation contains a past time although the Machine was never preserved. If a Machine
// was preserved, it has the condition Preserved. If the process could not write this condition, the annotation
// preserved-from shows that the Machine was removed from its set.
func NeverBegan(m *v1beta1.Machine, now time.Time) bool {
	until, err := Until(m)
	_, taken := m.Annotations[v1beta1.AnnotationPreservedFrom]
	return err == nil && !until.After(now) && !taken &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPreserved)
}

// Invalid explains why the value of the annotation machinist.dev/preserve is invalid. It returns "" if the value is
// valid or the annotation is missing.
func Invalid(m *v1beta1.Machine) string {
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

// SameOrigin reports whether two Machines belong, or belonged, to the same MachineDeployment or to the same MachineSet
// without a MachineDeployment.
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

// Due reports whether the Machine will be preserved soon. If a Machine has no instance, it is not preserved, because
// there is nothing to inspect.
func Due(m *v1beta1.Machine) bool {
	switch m.Annotations[v1beta1.AnnotationPreserve] {
	case v1beta1.PreserveNow:
	case v1beta1.PreserveWhenFailed:
		if !replacedForFailure(m) || OverLimit(m) {
			return false
		}
	default:
		return false
	}
	return machinestate.Live(m) && !Preserved(m) && m.Status.Instance != nil && !m.Replacing() && !m.Retrying() &&
		!machinestate.Unchangeable(m)
}

// replacedForFailure reports whether the set of the Machine would replace it now because it failed or is unhealthy. A
// Machine must not be preserved if its set would not replace it, because the preservation would cause a replacement. An
// interrupted Machine cannot be preserved, because the cloud will delete its instance.
func replacedForFailure(m *v1beta1.Machine) bool {
	return machinestate.FailedOrUnhealthy(m) && !machinestate.ReplacementExempt(m)
}
