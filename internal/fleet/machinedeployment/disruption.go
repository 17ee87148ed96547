package machinedeployment

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// readDisruption determines which machines the budgets protect now. The controllers of the sets check the budgets again
// before each disruption. The deployment reads the budgets first, so that it does not begin a rollout that cannot
// advance.
func (p *pass) readDisruption(ctx context.Context, v *view) error {
	candidates := v.candidates()
	asker := p.asker()
	if len(candidates) == 0 {
		p.Ledger.RecordWaiting(asker, nil)
		return nil
	}
	machines := make([]*v1beta1.Machine, len(candidates))
	for i, c := range candidates {
		machines[i] = c.Machine
	}
	mayDeny, err := p.Ledger.MayDeny(ctx, p.deployment.Namespace, machines)
	if err != nil || !mayDeny {
		return err
	}
	may, denied, err := p.Ledger.Check(ctx, asker, candidates)
	if err != nil {
		return err
	}
	if v.state.updatesInPlace() {
		p.Ledger.RecordWaiting(asker, denied[:min(len(denied), int(v.bounds.MaxUnavailable))])
	}
	if len(denied) == 0 {
		return nil
	}
	v.denied = denied
	p.requeueIn(disruption.DeniedPoll)
	closed := len(may) == 0
	setOf := v.setOf()
	for _, d := range denied {
		closed = closed && d.IsPersistent
		if in := d.EndTime.Sub(p.now); !d.EndTime.IsZero() && in > 0 {
			p.requeueIn(in)
		}
		counted := &v.state.Sets[setOf[d.Machine.UID]]
		counted.Denied++
		if machinestate.HasReplaceAnnotation(d.Machine) {
			counted.MarkedForReplacement--
			if !machinestate.IsAvailable(d.Machine, p.deployment.Spec.MinReadySeconds, p.now) {
				counted.UnavailableMarkedForReplacement--
			}
		}
	}
	if closed {
		v.state.DisruptionDenied = denied[0].Summary()
	}
	return nil
}

func (p *pass) asker() disruption.Asker {
	return disruption.Asker{Kind: "MachineDeployment", NamespacedName: client.ObjectKeyFromObject(p.deployment)}
}

func (r *Reconciler) waitingDeployments(_ context.Context, o client.Object) []reconcile.Request {
	return r.Ledger.Requests("MachineDeployment", o.GetNamespace())
}

// candidates returns the machines of old revisions and the machines that are marked for replacement.
func (v *view) candidates() (candidates []disruption.Candidate) {
	if v.state.Strategy == v1beta1.StrategyOnDelete {
		return nil // An administrator deletes the machines, which budgets do not prevent.
	}
	for i, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			switch {
			case !machinestate.IsLive(m):
			case i != v.currentIndex && v.state.updatesInPlace():
				candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionInPlaceUpdate})
			case machinestate.HasReplaceAnnotation(m):
				candidates = append(candidates, disruption.Candidate{Machine: m, Reason: disruption.ReasonOfReplacement(m)})
			case i != v.currentIndex && v.state.stopReason() == "":
				candidates = append(candidates, disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRollout})
			}
		}
	}
	return candidates
}

func (v *view) setOf() map[types.UID]int {
	setOf := map[types.UID]int{}
	for i, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			setOf[m.UID] = i
		}
	}
	return setOf
}

// waitingFor completes the reason why the rollout waits with the command that continues it, or with the first denial of
// a budget.
func (v *view) waitingFor(deployment, waiting string) string {
	if v.plan.StopReason == v1beta1.ReasonWaitingForPromotion && v.plan.StoppedAtRest {
		return fmt.Sprintf("%s; to continue now, run machinist rollout promote machinedeployment/%s", waiting, deployment)
	}
	if waiting == "" {
		waiting = v.waitsForDeletions()
	}
	if waiting == "" || len(v.denied) == 0 || v.state.DisruptionDenied != "" {
		return waiting
	}
	return waiting + "; " + v.denied[0].Summary()
}
