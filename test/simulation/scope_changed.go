package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changedScopes returns actions in which the status of a machine gets a wrong scope while the provider is down, so
// that the right scope is known only from the cloud. The machine is deleted, falls silent, is replaced, breaks, or is
// already being deleted.
func changedScopes(r *rand.Rand) []Action {
	i, late := r.IntN(2), r.IntN(4)
	lost := loseScope(i, late)
	return append([][]Action{
		{lost, deleteMachine(i).after(some(r, time.Minute))},
		{deleteMachine(i), lost.after(some(r, 15*time.Second))},
		{lost, silence(i).after(some(r, time.Minute)), wait(healthTimeout)},
		{lost, roll("b")},
		{lost, breakInstance(i).after(some(r, time.Minute)), wait(time.Minute)},
	}[r.IntN(5)], scale(1).after(time.Minute))
}

// loseScope returns an action that writes another scope into the status of the i-th machine at that time. The
// provider is down then, and starts later from lists that lack some changes.
func loseScope(i, late int) Action {
	return Action{Name: "write another scope while the provider is down", Do: func(ctx context.Context, w *World,
		c client.Client) error {
		for _, p := range w.processes {
			if p.name == Provider && !p.dead && !p.former {
				p.die()
				p.rewind = late
			}
		}
		machines := w.machines()
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)]
		if m.Status.Instance == nil {
			return nil
		}
		w.logf("the machine is %s", m.Name)
		changed := m.DeepCopy()
		changed.Status.Instance.Scope = "account-2"
		return client.IgnoreNotFound(c.Status().Patch(ctx, changed, client.MergeFrom(m)))
	}}
}

// scopeScenario returns the scenario in which scopes change.
func scopeScenario() Scenario {
	return Scenario{Name: "scope-changed-before-a-restart", Group: Safety, Controllers: Health | Orphans, Variants: 2,
		Base: fleet(2, "a"), Script: changedScopes, MayDiffer: anyEnd}
}
