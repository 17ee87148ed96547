package disruption

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/index"
)

// countedMachines holds the machines of a namespace, as they were read. pending holds the UIDs of machines whose
// disruption was granted but may not be visible in the objects yet. These machines count as disrupted too.
type countedMachines struct {
	machines []*v1beta1.Machine
	pending  map[types.UID]bool
}

// count reads the budgets of a namespace and, if there are any, its machines. Budgets created during the read are
// included.
func (l *Ledger) count(ctx context.Context, namespace string,
	machinesOf func(context.Context, string) ([]*v1beta1.Machine, error)) (budgets []*v1beta1.MachineDisruptionBudget,
	counted countedMachines, err error) {
	if budgets, err = l.readBudgets(ctx, namespace); err != nil || len(budgets) == 0 {
		return nil, countedMachines{}, err
	}
	counted.pending = l.pendingMachines(namespace)
	if counted.machines, err = machinesOf(ctx, namespace); err != nil {
		return nil, countedMachines{}, err
	}
	if trusts, _ := l.trustsBudgets(namespace); trusts {
		budgets, err = l.readBudgets(ctx, namespace)
	}
	return budgets, counted, err
}

// readBudgets returns the budgets of a namespace, which the caller must not change. The first call of a process reads
// the budgets from the API server, because an outdated cache may lack a new budget that stops all disruptions. Later
// calls use the cache.
func (l *Ledger) readBudgets(ctx context.Context, namespace string) ([]*v1beta1.MachineDisruptionBudget, error) {
	trusts, began := l.trustsBudgets(namespace)
	cached, err := listBudgets(ctx, l.Client, namespace)
	if err != nil || trusts {
		return withoutDeleted(cached), err
	}
	live, err := listBudgets(ctx, l.LiveReader, namespace)
	if err != nil {
		return nil, err
	}
	if freshness.SameObjects(cached, live) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.namespaceState(namespace).budgets.Confirm(began)
	}
	return withoutDeleted(live), nil
}

// trustsBudgets reports whether the cache has every budget that a previous process may have known.
func (l *Ledger) trustsBudgets(namespace string) (bool, freshness.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.namespaceState(namespace).budgets
	return t.IsConfirmed(), t.Mark()
}

// listBudgets lists the budgets of a namespace. The caller must not change the budgets.
func listBudgets(ctx context.Context, from client.Reader,
	namespace string) ([]*v1beta1.MachineDisruptionBudget, error) {
	budgets, err := index.ListShared[v1beta1.MachineDisruptionBudget](ctx, from, &v1beta1.MachineDisruptionBudgetList{},
		client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	return budgets, nil
}

func withoutDeleted(budgets []*v1beta1.MachineDisruptionBudget) []*v1beta1.MachineDisruptionBudget {
	return slices.DeleteFunc(budgets, func(b *v1beta1.MachineDisruptionBudget) bool {
		return !b.DeletionTimestamp.IsZero()
	})
}

// pendingMachines returns the machines with unsettled grants, except those whose write has an unknown outcome.
func (l *Ledger) pendingMachines(namespace string) map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pending := map[types.UID]bool{}
	for uid, unknown := range l.namespaceState(namespace).grants {
		if !unknown {
			pending[uid] = true
		}
	}
	return pending
}

func (l *Ledger) hasUnknownOutcome(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, unknown := range l.namespaceState(namespace).grants {
		if unknown {
			return true
		}
	}
	return false
}

func (l *Ledger) view(namespace string, budgets []*v1beta1.MachineDisruptionBudget, counted countedMachines) *View {
	r := l.namespaceState(namespace)
	return NewView(r.parse(budgets), counted.machines, func(uid types.UID) bool {
		_, is := r.grants[uid]
		return is || counted.pending[uid]
	}, l.Clock.Now())
}

func (l *Ledger) cachedMachines(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	machines, err := index.ListShared[v1beta1.Machine](ctx, l.Client, &v1beta1.MachineList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select: %w", err)
	}
	return machines, nil
}

// confirmedMachines returns the machines of a namespace from a trusted cache, or from the API server. The result
// includes all writes of other processes, and those of this process with an unknown outcome.
func (l *Ledger) confirmedMachines(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	version := ""
	if l.CacheVersion != nil {
		version = l.CacheVersion()
	}
	l.mu.Lock()
	r := l.namespaceState(namespace)
	trusts, began := r.cache.Trusts(version), r.cache.Mark()
	var unknown []types.UID
	for uid, is := range r.grants {
		if is {
			unknown = append(unknown, uid)
		}
	}
	l.mu.Unlock()
	if trusts {
		return l.cachedMachines(ctx, namespace)
	}
	list := &v1beta1.MachineList{}
	machines, err := index.ListShared[v1beta1.Machine](ctx, l.LiveReader, list, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select live: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.cache.RecordRelist(began, list.ResourceVersion)
	for _, uid := range unknown {
		delete(r.grants, uid)
	}
	return machines, nil
}

// parse returns the parsed budgets, and parses each generation only once.
func (r *namespaceState) parse(listed []*v1beta1.MachineDisruptionBudget) []*Budget {
	budgets, now := make([]*Budget, len(listed)), make(map[types.UID]parsedBudget, len(listed))
	for i, b := range listed {
		known, ok := r.parsed[b.UID]
		if !ok || known.generation != b.Generation {
			budget, _ := Parse(b) // An invalid budget allows no disruption, and its condition Valid reports the error.
			known = parsedBudget{b.Generation, budget}
		}
		now[b.UID], budgets[i] = known, known.budget
	}
	r.parsed = now
	return budgets
}
