package disruption

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/window"
)

// Budget is a parsed MachineDisruptionBudget. It is immutable.
type Budget struct {
	// NamespacedName is the name of the budget.
	types.NamespacedName

	selector labels.Selector
	// limit is a number of machines, or a percentage of the selected machines.
	limit      int
	percentage bool
	reasons    []v1beta1.DisruptionReason
	windows    window.Set
	// If outside is true, the budget is in force outside its windows. Otherwise the budget is in force inside its
	// windows.
	outside bool
}

// Parse parses a budget. The error names each invalid field. If there is an error, Parse still returns a budget, which
// allows no disruption at any time. Therefore a typing error never permits the disruption of machines that the
// budget should protect. If the selector is invalid too, this budget selects every machine in the namespace.
func Parse(b *v1beta1.MachineDisruptionBudget) (*Budget, error) {
	parsed := &Budget{
		NamespacedName: types.NamespacedName{Namespace: b.Namespace, Name: b.Name},
		selector:       Selector(b), reasons: slices.Clone(b.Spec.Reasons),
	}
	if err := validation.Budget(b).ToAggregate(); err != nil {
		return parsed, err
	}
	parsed.limit, parsed.percentage, _ = validation.MaxDisrupted(b.Spec.MaxDisrupted)
	parsed.windows, _ = window.Parse(validation.BudgetWindows, b.Spec.Windows)
	parsed.outside = b.Spec.Apply == v1beta1.ApplyOutside
	return parsed, nil
}

// Selector returns the selector of a budget, even if other fields are invalid. If the selector is invalid, it returns a
// selector that matches everything.
func Selector(b *v1beta1.MachineDisruptionBudget) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(&b.Spec.Selector)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// Selects reports whether the budget selects a machine of its namespace with these labels.
func (b *Budget) Selects(machine map[string]string) bool {
	return b.selector.Matches(labels.Set(machine))
}

// Asks reports whether a disruption for the given reason needs room in the budget.
func (b *Budget) Asks(reason v1beta1.DisruptionReason) bool {
	return len(b.reasons) == 0 || slices.Contains(b.reasons, reason)
}

// InForce reports whether the budget limits disruptions at the given time. A budget without windows always does. Any
// other budget does so only inside, or only outside, its windows.
func (b *Budget) InForce(now time.Time) bool {
	return len(b.windows) == 0 || b.windows.Open(now) != b.outside
}

// NextChange returns the next time after now at which InForce changes, or false if InForce never changes.
func (b *Budget) NextChange(now time.Time) (time.Time, bool) {
	return b.windows.NextChange(now)
}

// Allowed returns how many of the selected machines may be disrupted at the same time. A percentage is rounded
// down, and is at least 1 unless it is 0%.
func (b *Budget) Allowed(selected int) int {
	if !b.percentage || b.limit == 0 {
		return b.limit
	}
	return max(1, selected*b.limit/100)
}
