package admission

import (
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
)

// HealthCheck judges a MachineHealthCheck.
func HealthCheck(c *v1beta1.MachineHealthCheck) (v Result) {
	spec := field.NewPath("spec")
	conditions := spec.Child("unhealthyNodeConditions")
	v.refuse(validation.HealthCheck(c)...)
	for i, condition := range c.Spec.UnhealthyNodeConditions {
		if condition.Timeout.Duration == 0 {
			v.warn(conditions.Index(i).Child("timeout"), "0s replaces a machine at the first sign")
		}
	}
	if len(c.Spec.UnhealthyNodeConditions) == 0 && c.Spec.NodeStartupTimeout == nil {
		v.warn(conditions,
			"without any, and without nodeStartupTimeout, no machine is ever unhealthy, and the built-in policy no longer judges those selected")
	}
	switch m := c.Spec.MaxUnhealthy; {
	case all(m):
		v.warn(spec.Child("maxUnhealthy"),
			"100%% replaces machines even when all are unhealthy at once, which is seldom the machines' fault")
	case none(m):
		v.warn(spec.Child("maxUnhealthy"), "%s never replaces any machine", m.String())
	}
	return v
}

// Class judges a MachineClass, its providerSpec apart.
func Class(c *v1beta1.MachineClass) (v Result) {
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
