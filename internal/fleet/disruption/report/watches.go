package report

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wiring"
)

// Wiring lists the events that trigger a pass over a budget.
func (r *Reconciler) Wiring() wiring.Controller {
	return wiring.Controller{
		Name: "machinedisruptionbudget", Reconciler: r, Concurrency: 1,
		For: &wiring.Watch{Object: &v1beta1.MachineDisruptionBudget{}, Predicate: predicate.GenerationChangedPredicate{}},
		Watches: []wiring.Watch{
			{Object: &v1beta1.Machine{}, Predicate: r.machineChanged(),
				Keys: queueing.EnqueueAfter(r.budgetsOf, func(budget reconcile.Request) time.Duration {
					return max(coalesce, r.mayWriteIn(budget.NamespacedName))
				})},
		},
	}
}

// budgetsOf returns the budgets that select a machine. budgetsOf runs in an event handler, so it does not wait for
// writes in progress.
func (r *Reconciler) budgetsOf(ctx context.Context, machine client.Object) (requests []reconcile.Request) {
	budgets, err := index.ListShared[v1beta1.MachineDisruptionBudget](ctx, r.Client, &v1beta1.MachineDisruptionBudgetList{},
		client.InNamespace(machine.GetNamespace()), client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil // The cache has not synced yet. After the sync, each budget triggers an event.
	}
	for _, b := range budgets {
		if disruption.Selector(b).Matches(labels.Set(machine.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

func (r *Reconciler) machineChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1beta1.Machine)
		is, also := e.ObjectNew.(*v1beta1.Machine)
		if !ok || !also || !maps.Equal(was.Labels, is.Labels) {
			return true
		}
		before, disruptedBefore := disruption.ReasonOf(was)
		now, disruptedNow := disruption.ReasonOf(is)
		return disruptedBefore != disruptedNow || before != now
	}}
}
