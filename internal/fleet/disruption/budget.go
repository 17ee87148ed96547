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

// Budget is a parsed MachineDisruptionBudget. Budget is immutable.
type Budget struct {
	// NamespacedName is the name of the budget.
	types.NamespacedName

	selector   labels.Selector
	limit      int
	percentage bool
	reasons    []v1beta1.DisruptionReason
	windows    window.Set
	// If outsideWindows is true, the budget is in force only while none of its windows is open.
	outsideWindows bool
}

// Parse parses a budget. The error names each invalid field. Even then, Parse returns a budget that allows no
// disruption, so that a typing error never exposes machines. With an invalid selector, this budget selects every
// machine in the namespace.
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
	parsed.outsideWindows = b.Spec.Apply == v1beta1.ApplyOutside
	return parsed, nil
}

// Selector returns the selector of a budget even if other fields are invalid. An invalid selector matches everything.
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

// AppliesTo reports whether a disruption for the given reason needs room in the budget.
func (b *Budget) AppliesTo(reason v1beta1.DisruptionReason) bool {
	return len(b.reasons) == 0 || slices.Contains(b.reasons, reason)
}

// InForce reports whether the budget limits disruptions now. A budget without windows is always in force.
func (b *Budget) InForce(now time.Time) bool {
	return len(b.windows) == 0 || b.windows.Open(now) != b.outsideWindows
}

// NextChange returns when InForce changes next, or false if it never does.
func (b *Budget) NextChange(now time.Time) (time.Time, bool) {
	return b.windows.NextChange(now)
}

// AllowedDisruptions returns how many of the selected machines may be disrupted at a time. A percentage is rounded
// down to at least 1, except for 0%.
func (b *Budget) AllowedDisruptions(selected int) int {
	if !b.percentage || b.limit == 0 {
		return b.limit
	}
	return max(1, selected*b.limit/100)
}
