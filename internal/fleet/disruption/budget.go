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

// Budget is a MachineDisruptionBudget as decisions use it. It does not change.
type Budget struct {
	// NamespacedName of the budget.
	types.NamespacedName

	selector labels.Selector
	// limit is a number of machines, or a percentage of those that are selected.
	limit      int
	percentage bool
	reasons    []v1beta1.DisruptionReason
	windows    window.Set
	// outside is whether the budget is in force while no window is open.
	outside bool
}

// Parse returns what a budget says, and an error that names each field that cannot be understood. The budget that it
// returns with an error allows nothing at any time: it selects by its selector if that is readable, and every machine
// of the namespace else. What somebody meant to limit is not disrupted because of a typing error.
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

// Selector returns what selects the machines that a budget is about, also if the rest of it cannot be understood.
func Selector(b *v1beta1.MachineDisruptionBudget) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(&b.Spec.Selector)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// Selects reports whether the budget is about a machine of its namespace with these labels.
func (b *Budget) Selects(machine map[string]string) bool {
	return b.selector.Matches(labels.Set(machine))
}

// Asks reports whether a disruption for a reason has to ask the budget.
func (b *Budget) Asks(reason v1beta1.DisruptionReason) bool {
	return len(b.reasons) == 0 || slices.Contains(b.reasons, reason)
}

// InForce reports whether the budget limits disruptions at a time: always if it has no windows, else inside or outside
// of them.
func (b *Budget) InForce(now time.Time) bool {
	return len(b.windows) == 0 || b.windows.Open(now) != b.outside
}

// NextChange returns when InForce changes next after a time, false if it does not.
func (b *Budget) NextChange(now time.Time) (time.Time, bool) {
	return b.windows.NextChange(now)
}

// Allowed returns how many machines may be disrupted at a time of a number that the budget selects. A percentage is
// rounded down, and at least 1 unless it is 0.
func (b *Budget) Allowed(selected int) int {
	if !b.percentage || b.limit == 0 {
		return b.limit
	}
	return max(1, selected*b.limit/100)
}
