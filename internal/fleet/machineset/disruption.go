package machineset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Disruption is the part of a State that describes the limits of disruptions.
type Disruption struct {
	// Ask returns which of the candidates may be disrupted now, and which may not be. If Ask is nil, all candidates may be
	// disrupted, because there is no budget and no machine is exempt.
	Ask func(candidates []disruption.Candidate) (may []disruption.Candidate, denied []disruption.Denial)
	// Outdated is true if the set belongs to an old revision of its deployment.
	Outdated bool
	// ScaleDown is how many machines of the set are deleted because its deployment was scaled down, and not because of a
	// rollout or a replacement.
	ScaleDown int
}

// ask asks the budgets for permission to disrupt machines. It returns the permitted machines in the same order.
func (p *Plan) ask(s State, machines []*v1beta1.Machine,
	reason func(*v1beta1.Machine) v1beta1.DisruptionReason) (may []*v1beta1.Machine, denied []disruption.Denial) {
	if s.Ask == nil || len(machines) == 0 {
		return machines, nil
	}
	candidates := make([]disruption.Candidate, len(machines))
	for i, m := range machines {
		candidates[i] = disruption.Candidate{Machine: m, Reason: reason(m)}
	}
	granted, denied := s.Ask(candidates)
	if p.asked == nil {
		p.asked = make(map[types.UID]disruption.Candidate, len(granted))
	}
	for _, c := range granted {
		p.asked[c.Machine.UID] = c
	}
	for _, m := range machines {
		if _, granted := p.asked[m.UID]; granted {
			may = append(may, m)
		}
	}
	return may, denied
}

// removeDenied removes the machines from Delete that must not be disrupted now because of budgets. A scale-down does
// not need room in budgets.
func (p *Plan) removeDenied(s State) {
	if s.Ask == nil {
		return
	}
	var needRoom []*v1beta1.Machine
	for _, m := range p.Delete {
		if s.Outdated || machinestate.Exchanged(m) {
			needRoom = append(needRoom, m)
		}
	}
	_, denied := p.ask(s, needRoom, func(m *v1beta1.Machine) v1beta1.DisruptionReason {
		if machinestate.Exchanged(m) {
			return disruption.ReasonOfExchange(m)
		}
		return v1beta1.DisruptionRollout
	})
	denied = denied[min(s.ScaleDown, len(denied)):]
	p.deny(denied)
	stays := make(map[types.UID]bool, len(denied))
	for _, d := range denied {
		stays[d.Machine.UID] = true
	}
	p.Delete = slices.DeleteFunc(slices.Clone(p.Delete), func(m *v1beta1.Machine) bool { return stays[m.UID] })
}

// deny records machines that must not be disrupted now, and requests another plan so that the budgets are asked
// again.
func (p *Plan) deny(denied []disruption.Denial) {
	p.Denied = append(p.Denied, denied...)
	if len(denied) > 0 {
		p.waitFor(disruption.DeniedPoll)
	}
}

// recordPlanned records which of the permitted candidates the plan will disrupt. If the plan is postponed,
// candidates with a lower priority must not take the room of these machines in the meantime.
func (p *Plan) recordPlanned() {
	if len(p.asked) == 0 {
		return
	}
	machines := slices.Concat(p.Delete, p.Remediate)
	for _, u := range p.HandOver {
		machines = append(machines, u.From)
	}
	for _, m := range machines {
		if c, asked := p.asked[m.UID]; asked {
			p.planned = append(p.planned, c)
		}
	}
}

// waitForWindows requests another plan at the time at which a window or the end of an exemption may permit a
// disruption that is denied now.
func (p *Plan) waitForWindows(now time.Time) {
	for _, d := range p.Denied {
		if in := d.Until.Sub(now); !d.Until.IsZero() && in > 0 {
			p.waitFor(in)
		}
	}
}

// exemptLast moves machines that are exempt from disruption to the end of the list, so that other machines are deleted
// if possible. The list mayBeExempt contains all exempt machines, and possibly other machines.
func exemptLast(machines, mayBeExempt []*v1beta1.Machine, now time.Time) []*v1beta1.Machine {
	if !slices.ContainsFunc(mayBeExempt, func(m *v1beta1.Machine) bool {
		_, exempt := disruption.ExemptUntil(m, now)
		return exempt
	}) {
		return machines
	}
	slices.SortStableFunc(machines, func(a, b *v1beta1.Machine) int {
		_, first := disruption.ExemptUntil(a, now)
		_, second := disruption.ExemptUntil(b, now)
		return -machinestate.FalseFirst(!first, !second)
	})
	return machines
}

// readDisruption prepares State.Disruption. If no budget and no exemption applies to the set, Ask stays nil.
func (p *pass) readDisruption(ctx context.Context) error {
	s := &p.state
	s.Disruption = Disruption{}
	if !s.mayDisrupt(p.live) {
		return nil
	}
	_, others := s.splitSteady()
	concerned, err := p.Ledger.MayDeny(ctx, p.key.Namespace, others)
	if err != nil || !concerned {
		return err
	}
	s.Ask = func(candidates []disruption.Candidate) ([]disruption.Candidate, []disruption.Denial) {
		may, denied, err := p.Ledger.Check(ctx, asker(p.key), candidates)
		if err != nil {
			for _, c := range candidates {
				denied = append(denied, disruption.Denial{Candidate: c, Why: err.Error()})
			}
			return nil, denied
		}
		return may, denied
	}
	if p.deployment == nil || p.live <= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	return p.readRollout(ctx)
}

// mayDisrupt reports whether a plan may disrupt any machine. If not, the pass does not read budgets. The parameter
// live is the number of machines of the set that are not being deleted.
func (s *State) mayDisrupt(live int) bool {
	_, others := s.splitSteady()
	return s.Set.Spec.Template.Spec.ExpireAfter != nil || live > int(s.Set.ReplicasOrDefault()) ||
		slices.ContainsFunc(others, func(m *v1beta1.Machine) bool {
			return machinestate.Live(m) && (machinestate.ToBeReplaced(m) || machinestate.Exchanged(m))
		})
}

// readRollout determines whether the set is outdated, and by how many machines the deployment exceeds the maximum
// number that a rollout permits. The machines beyond this maximum are deleted because the deployment was scaled
// down.
func (p *pass) readRollout(ctx context.Context) error {
	s, d := &p.state, p.deployment
	siblings, err := p.siblings(ctx)
	if err != nil {
		return err
	}
	live, newer := p.live, 0
	for _, sibling := range siblings {
		machines, err := p.cachedMachines(ctx, sibling, nil)
		if err != nil {
			return err
		}
		live += countLive(machines)
		if sibling.DeletionTimestamp.IsZero() && revisionOf(sibling) > revisionOf(s.Set) {
			s.Outdated = true
			newer += countLive(machines)
		}
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.Of(d)
	if err != nil || !d.DeletionTimestamp.IsZero() {
		return nil
	}
	surge := int(limits.MaxSurge)
	if s.Outdated {
		surge = min(surge, newer) // The machines that a rollout creates first belong to a newer revision.
	} else {
		surge = min(surge, int(disruption.ReplacementSurge(s.Set)))
	}
	if replicas == 0 {
		surge = 0
	}
	s.ScaleDown = max(0, live-int(replicas)-surge)
	return nil
}

func revisionOf(set *v1beta1.MachineSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// grant takes room in the budgets for those of the given machines that, according to the plan, need room. It
// returns the given machines except those whose disruption is denied now. Another controller may have taken the
// room since the plan was made. The caller must call Ledger.Settle for each returned machine.
func (p *pass) grant(ctx context.Context, plan Plan, machines []*v1beta1.Machine) ([]*v1beta1.Machine, error) {
	var candidates []disruption.Candidate
	for _, m := range machines {
		if c, asked := plan.asked[m.UID]; asked {
			c.Machine = m
			candidates = append(candidates, c)
		}
	}
	granted, err := p.Ledger.Grant(ctx, asker(p.key), candidates)
	if err != nil {
		return nil, err
	}
	if len(granted) < len(candidates) {
		p.markCacheStale()
	}
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1beta1.Machine) bool {
		_, asked := plan.asked[m.UID]
		return asked && !slices.ContainsFunc(granted, func(c disruption.Candidate) bool { return c.Machine.UID == m.UID })
	}), nil
}

// deniedMessage returns a message that explains why machines must not be disrupted now. The message names only one
// machine. If the message contained a count, it would change with every machine.
func deniedMessage(denied []disruption.Denial) string {
	first := slices.MinFunc(denied, func(a, b disruption.Denial) int {
		return cmp.Compare(a.Machine.Name, b.Machine.Name)
	})
	return fmt.Sprintf("Machine %s must not be disrupted now: %s.", first.Machine.Name, first.Brief())
}

// waitingSpacing delays passes over sets that wait for room in a budget, because several disruptions may end at the
// same time.
const waitingSpacing = 200 * time.Millisecond

// asker returns the identity of a set for requests to the Ledger.
func asker(key types.NamespacedName) disruption.Asker {
	return disruption.Asker{Kind: "MachineSet", NamespacedName: key}
}

// waitingSets returns the sets that wait for room in a budget, in the namespace of the object.
func (r *Reconciler) waitingSets(_ context.Context, o client.Object) []reconcile.Request {
	return r.Ledger.Requests("MachineSet", o.GetNamespace())
}
