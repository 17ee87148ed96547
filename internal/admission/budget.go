package admission

import (
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/window"
)

// ValidateBudget validates a MachineDisruptionBudget at the time now.
func ValidateBudget(b *v1beta1.MachineDisruptionBudget, now time.Time) (v Result) {
	v.refuse(validation.Budget(b)...)
	limit, percentage, _ := validation.MaxDisrupted(b.Spec.MaxDisrupted)
	switch {
	case len(v.Errors) > 0:
		return v
	case percentage && limit == 100:
		v.warn(validation.BudgetMaxDisrupted, "100%% does not limit anything")
	// The budget that `machinist pause --fleet` creates deliberately has no windows.
	case limit == 0 && len(b.Spec.Windows) == 0 && b.Name != disruption.PauseBudget:
		v.warn(validation.BudgetMaxDisrupted, "%s without windows blocks all disruptions until the budget is changed%s",
			b.Spec.MaxDisrupted.String(), blocksRemediation(b.Spec.Reasons))
	}
	windows, _ := window.Parse(validation.BudgetWindows, b.Spec.Windows)
	if _, changes := windows.NextChange(now); len(windows) > 0 && windows.Open(now) && !changes {
		if b.Spec.Apply == v1beta1.ApplyOutside {
			v.warn(validation.BudgetWindows,
				"the budget never applies, because it applies outside of windows and a window is always open")
		} else {
			v.warn(validation.BudgetWindows, "a window is always open, so the budget always applies and needs no windows")
		}
	}
	return v
}

// blocksRemediation returns a clause about broken machines for a warning. The clause is empty if the budget permits
// their replacement.
func blocksRemediation(reasons []v1beta1.DisruptionReason) string {
	if len(reasons) == 0 || slices.Contains(reasons, v1beta1.DisruptionRemediation) {
		return ", and broken machines are not replaced either"
	}
	return ""
}
