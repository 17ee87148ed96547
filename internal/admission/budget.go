package admission

import (
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/window"
)

// Budget judges a MachineDisruptionBudget that is applied at a time.
func Budget(b *v1beta1.MachineDisruptionBudget, now time.Time) (v Result) {
	v.refuse(validation.Budget(b)...)
	limit, percentage, _ := validation.MaxDisrupted(b.Spec.MaxDisrupted)
	switch {
	case len(v.Errors) > 0:
		return v
	case percentage && limit == 100:
		v.warn(validation.BudgetMaxDisrupted, "100%% limits nothing")
	// Whoever pauses a fleet knows that it stays paused.
	case limit == 0 && len(b.Spec.Windows) == 0 && b.Name != disruption.PauseBudget:
		v.warn(validation.BudgetMaxDisrupted, "%s without windows blocks disruptions until somebody changes the budget%s",
			b.Spec.MaxDisrupted.String(), brokenToo(b.Spec.Reasons))
	}
	windows, _ := window.Parse(validation.BudgetWindows, b.Spec.Windows)
	if _, changes := windows.NextChange(now); len(windows) > 0 && windows.Open(now) && !changes {
		if b.Spec.Apply == v1beta1.ApplyOutside {
			v.warn(validation.BudgetWindows, "one is always open, so the budget never applies outside of them")
		} else {
			v.warn(validation.BudgetWindows, "one is always open, so the budget always applies: it needs no windows")
		}
	}
	return v
}

// brokenToo says what people forget of a budget that allows nothing.
func brokenToo(reasons []v1beta1.DisruptionReason) string {
	if len(reasons) == 0 || slices.Contains(reasons, v1beta1.DisruptionRemediation) {
		return ": nor is a broken machine replaced"
	}
	return ""
}
