package disruption

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/disruption/window"
	"machinist.dev/machinist/internal/validation"
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
		selector:       labels.Everything(), reasons: slices.Clone(b.Spec.Reasons),
	}
	if selector, err := metav1.LabelSelectorAsSelector(&b.Spec.Selector); err == nil {
		parsed.selector = selector
	}
	if err := validation.Budget(b).ToAggregate(); err != nil {
		return parsed, err
	}
	parsed.limit, parsed.percentage, _ = validation.MaxDisrupted(b.Spec.MaxDisrupted)
	parsed.windows, _ = window.Parse(validation.BudgetWindows, b.Spec.Windows)
	parsed.outside = b.Spec.Apply == v1beta1.ApplyOutside
	return parsed, nil
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

// Parsed keeps the budgets that were parsed: that costs far more than to evaluate one. The zero value is ready to use.
type Parsed struct {
	mu       sync.Mutex
	byUID    map[types.UID]*parsed
	sequence uint64
}

// parsed is a budget of one generation.
type parsed struct {
	generation int64
	budget     *Budget
	err        error
	// used is the sequence of the last call of All that used it.
	used uint64
}

// Get returns what Parse does for a budget.
func (p *Parsed) Get(b *v1beta1.MachineDisruptionBudget) (*Budget, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.get(b)
	return entry.budget, entry.err
}

// All returns the budgets, those with an error too, and forgets all others.
func (p *Parsed) All(budgets []v1beta1.MachineDisruptionBudget) []*Budget {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sequence++
	all := make([]*Budget, 0, len(budgets))
	for i := range budgets {
		all = append(all, p.get(&budgets[i]).budget)
	}
	for uid, entry := range p.byUID {
		if entry.used != p.sequence {
			delete(p.byUID, uid)
		}
	}
	return all
}

// Forget drops a budget that is gone.
func (p *Parsed) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byUID, uid)
}

func (p *Parsed) get(b *v1beta1.MachineDisruptionBudget) *parsed {
	entry := p.byUID[b.UID]
	if entry == nil || entry.generation != b.Generation || b.UID == "" {
		budget, err := Parse(b)
		entry = &parsed{generation: b.Generation, budget: budget, err: err}
		if b.UID != "" {
			if p.byUID == nil {
				p.byUID = map[types.UID]*parsed{}
			}
			p.byUID[b.UID] = entry
		}
	}
	entry.used = p.sequence
	return entry
}
