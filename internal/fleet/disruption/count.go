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

// counted are the machines of a namespace. pending were granted when they were about to be read: such a write may be
// settled since, and still be missing in them.
type counted struct {
	machines []*v1beta1.Machine
	pending  map[types.UID]bool
}

// count reads the budgets of a namespace and, if there are any, its machines. A budget that came meanwhile is among
// them.
func (l *Ledger) count(ctx context.Context, namespace string,
	machinesOf func(context.Context, string) ([]*v1beta1.Machine, error)) (budgets []*v1beta1.MachineDisruptionBudget,
	of counted, err error) {
	if budgets, err = l.readBudgets(ctx, namespace); err != nil || len(budgets) == 0 {
		return nil, counted{}, err
	}
	of.pending = l.pending(namespace)
	if of.machines, err = machinesOf(ctx, namespace); err != nil {
		return nil, counted{}, err
	}
	if trusts, _ := l.trustsBudgets(namespace); trusts {
		budgets, err = l.readBudgets(ctx, namespace)
	}
	return budgets, of, err
}

// readBudgets returns the budgets of a namespace, not to be changed. A process that begins reads them from the API
// server once: its cache may begin with a list that is older than what the process before it knew, without a budget
// that people made to stop everything.
func (l *Ledger) readBudgets(ctx context.Context, namespace string) ([]*v1beta1.MachineDisruptionBudget, error) {
	trusts, began := l.trustsBudgets(namespace)
	cached, err := listBudgets(ctx, l.Client, namespace)
	if err != nil || trusts {
		return withoutDeleted(cached), err
	}
	live, err := listBudgets(ctx, l.Live, namespace)
	if err != nil {
		return nil, err
	}
	if freshness.SameObjects(cached, live) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.record(namespace).budgets.Confirm(began)
	}
	return withoutDeleted(live), nil
}

// trustsBudgets reports whether the cache has all budgets that a process before this one may have known.
func (l *Ledger) trustsBudgets(namespace string) (bool, freshness.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.record(namespace).budgets
	return t.Confirmed(), t.Mark()
}

// listBudgets returns the budgets of a namespace as a client has them, not to be changed.
func listBudgets(ctx context.Context, from client.Reader,
	namespace string) ([]*v1beta1.MachineDisruptionBudget, error) {
	budgets, err := index.Shared[v1beta1.MachineDisruptionBudget](ctx, from, &v1beta1.MachineDisruptionBudgetList{},
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

// pending returns the machines whose grants are yet to be settled, and will be.
func (l *Ledger) pending(namespace string) map[types.UID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pending := map[types.UID]bool{}
	for uid, unknown := range l.record(namespace).granted {
		if !unknown {
			pending[uid] = true
		}
	}
	return pending
}

// unsure reports whether nobody knows of a granted disruption whether it was written.
func (l *Ledger) unsure(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, unknown := range l.record(namespace).granted {
		if unknown {
			return true
		}
	}
	return false
}

// view returns how far these budgets are used.
func (l *Ledger) view(namespace string, budgets []*v1beta1.MachineDisruptionBudget, of counted) *View {
	r := l.record(namespace)
	return NewView(r.understood(budgets), of.machines, func(uid types.UID) bool {
		_, is := r.granted[uid]
		return is || of.pending[uid]
	}, l.Clock.Now())
}

// cached returns the machines of a namespace as the cache has them.
func (l *Ledger) cached(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	machines, err := index.Shared[v1beta1.Machine](ctx, l.Client, &v1beta1.MachineList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select: %w", err)
	}
	return machines, nil
}

// confirmed returns the machines of a namespace from the cache if that may be trusted, or else from a live list. What
// other processes granted and wrote, or this one with an unknown outcome, is then counted.
func (l *Ledger) confirmed(ctx context.Context, namespace string) ([]*v1beta1.Machine, error) {
	version := ""
	if l.CacheVersion != nil {
		version = l.CacheVersion()
	}
	l.mu.Lock()
	r := l.record(namespace)
	trusts, began := r.cache.Trusts(version), r.cache.Mark()
	var unknown []types.UID
	for uid, is := range r.granted {
		if is {
			unknown = append(unknown, uid)
		}
	}
	l.mu.Unlock()
	if trusts {
		return l.cached(ctx, namespace)
	}
	list := &v1beta1.MachineList{}
	machines, err := index.Shared[v1beta1.Machine](ctx, l.Live, list, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list the machines that budgets select live: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.cache.Relisted(began, list.ResourceVersion)
	for _, uid := range unknown {
		delete(r.granted, uid)
	}
	return machines, nil
}

// understood returns the budgets as they are understood. What that takes is done once for each generation.
func (r *record) understood(listed []*v1beta1.MachineDisruptionBudget) []*Budget {
	budgets, now := make([]*Budget, len(listed)), make(map[types.UID]parsed, len(listed))
	for i, b := range listed {
		known, ok := r.parsed[b.UID]
		if !ok || known.generation != b.Generation {
			budget, _ := Parse(b) // One that cannot be understood allows nothing; its condition says why.
			known = parsed{b.Generation, budget}
		}
		now[b.UID], budgets[i] = known, known.budget
	}
	r.parsed = now
	return budgets
}
