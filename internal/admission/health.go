package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
)

// ValidateHealthCheck validates a MachineHealthCheck. The manager may create remediations only of the given kinds.
func ValidateHealthCheck(c *v1beta1.MachineHealthCheck, kinds []schema.GroupKind) (v Result) {
	spec := field.NewPath("spec")
	conditions := spec.Child("unhealthyNodeConditions")
	v.refuse(validation.HealthCheck(c)...)
	for i, condition := range c.Spec.UnhealthyNodeConditions {
		if condition.Timeout.Duration == 0 {
			v.warn(conditions.Index(i).Child("timeout"), "with 0s, a machine is replaced as soon as its Node has the condition")
		}
	}
	for i, condition := range c.Spec.UnhealthyMachineConditions {
		if condition.Timeout.Duration == 0 {
			v.warn(spec.Child("unhealthyMachineConditions").Index(i).Child("timeout"),
				"with 0s, a machine is replaced as soon as it has the condition")
		}
	}
	if len(c.Spec.UnhealthyNodeConditions)+len(c.Spec.UnhealthyMachineConditions) == 0 &&
		c.Spec.NodeStartupTimeout == nil {
		v.warn(conditions,
			"without conditions and nodeStartupTimeout, a selected machine is unhealthy only if it failed or if its Node was deleted; the built-in policy does not apply to selected machines")
	}
	v.checkRemediation(c.Spec.Remediation, kinds)
	switch m, text := c.Spec.MaxUnhealthy, c.Spec.UnhealthyRange; {
	case text != "":
		if r, err := v1beta1.ParseUnhealthyRange(text); err == nil && r.Max == 0 {
			v.warn(spec.Child("unhealthyRange"), "with %s, no machine is ever replaced", text)
		}
	case all(m):
		v.warn(spec.Child("maxUnhealthy"),
			"with 100%%, machines are replaced even if all are unhealthy at once, which usually has another cause")
	case none(m):
		v.warn(spec.Child("maxUnhealthy"), "with %s, no machine is ever replaced", m.String())
	}
	return v
}

func (v *Result) checkRemediation(r v1beta1.HealthCheckRemediation, kinds []schema.GroupKind) {
	if r.TemplateRef == nil {
		return
	}
	at := field.NewPath("spec", "remediation")
	if kind := r.TemplateRef.RemediationKind().GroupKind(); !slices.Contains(kinds, kind) {
		v.refuse(field.Invalid(at.Child("templateRef", "kind"), r.TemplateRef.Kind, validation.RemediationNotPermitted(kind)))
	}
	if r.Timeout == nil {
		v.warn(at.Child("timeout"), "without a timeout, a machine stays unhealthy if its remediation never ends")
	}
}

// ValidateClass validates a MachineClass, except its providerSpec.
func ValidateClass(c *v1beta1.MachineClass) (v Result) {
	if c.Spec.Capacity == nil {
		return v
	}
	capacity := field.NewPath("spec", "capacity")
	for name, value := range map[string]string{
		"instanceType": c.Spec.Capacity.InstanceType, "region": c.Spec.Capacity.Region,
		"zone": c.Spec.Capacity.Zone, "architecture": c.Spec.Capacity.Architecture,
	} {
		for _, problem := range content.IsValidLabelValue(value) {
			v.refuse(field.Invalid(capacity.Child(name), value, problem))
		}
	}
	return v
}
