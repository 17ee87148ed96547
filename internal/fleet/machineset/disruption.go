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
	// Decide divides candidates into those that may be disrupted now and those that may not. Nil allows all, because
	// no budget or exemption exists.
	Decide func(candidates []disruption.Candidate) (may []disruption.Candidate, denied []disruption.Denial)
	// IsOutdated is true if the set belongs to an old revision of its deployment.
	IsOutdated bool
	// ScaleDown is how many machines are deleted because the deployment was scaled down.
	ScaleDown int
}

func (p *Plan) ask(s State, machines []*v1beta1.Machine,
	reason func(*v1beta1.Machine) v1beta1.DisruptionReason) (may []*v1beta1.Machine, denied []disruption.Denial) {
	if s.Decide == nil || len(machines) == 0 {
		return machines, nil
	}
	candidates := make([]disruption.Candidate, len(machines))
	for i, m := range machines {
		candidates[i] = disruption.Candidate{Machine: m, Reason: reason(m)}
	}
	granted, denied := s.Decide(candidates)
	if p.permitted == nil {
		p.permitted = make(map[types.UID]disruption.Candidate, len(granted))
	}
	for _, c := range granted {
		p.permitted[c.Machine.UID] = c
	}
	for _, m := range machines {
		if _, granted := p.permitted[m.UID]; granted {
			may = append(may, m)
		}
	}
	return may, denied
}

// removeDenied removes from Delete the machines that budgets protect, and records the reasons of the other deletions. A
// scale-down needs no room in budgets.
func (p *Plan) removeDenied(s State) {
	if s.Decide == nil {
		p.explainDeletions(s, nil)
		return
	}
	var needRoom []*v1beta1.Machine
	for _, m := range p.Delete {
		if s.reasonOfSurplus(m) != ScaleDownReason {
			needRoom = append(needRoom, m)
		}
	}
	_, denied := p.ask(s, needRoom, func(m *v1beta1.Machine) v1beta1.DisruptionReason {
		return v1beta1.DisruptionReason(s.reasonOfSurplus(m))
	})
	scaledDown := denied[:min(s.ScaleDown, len(denied))]
	denied = denied[len(scaledDown):]
	p.deny(denied)
	stays := make(map[types.UID]bool, len(denied))
	for _, d := range denied {
		stays[d.Machine.UID] = true
	}
	p.Delete = slices.DeleteFunc(slices.Clone(p.Delete), func(m *v1beta1.Machine) bool { return stays[m.UID] })
	p.explainDeletions(s, scaledDown)
}

// deny adds denials to the plan, and requests another plan after DeniedPoll to ask the budgets again.
func (p *Plan) deny(denied []disruption.Denial) {
	p.Denials = append(p.Denials, denied...)
	if len(denied) > 0 {
		p.waitFor(disruption.DeniedPoll)
	}
}

// recordPlanned records the candidates that the plan disrupts. Even if the plan is postponed, the budgets reserve the
// disruption of these candidates.
func (p *Plan) recordPlanned() {
	if len(p.permitted) == 0 {
		return
	}
	machines := slices.Concat(p.Delete, p.Remediate, p.Reboot)
	for _, u := range p.HandOver {
		machines = append(machines, u.From)
	}
	for _, m := range machines {
		if c, asked := p.permitted[m.UID]; asked {
			p.plannedDisruptions = append(p.plannedDisruptions, c)
		}
	}
}

// waitForWindows requests another plan when a window or the end of an exemption may permit a denied disruption.
func (p *Plan) waitForWindows(now time.Time) {
	for _, d := range p.Denials {
		if in := d.EndTime.Sub(now); !d.EndTime.IsZero() && in > 0 {
			p.waitFor(in)
		}
	}
}

// exemptLast moves exempt machines to the end, so that other machines are deleted first. Only machines in mayBeExempt
// can be exempt.
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

// readDisruption prepares State.Disruption. If no budget or exemption applies, the field Decide is nil. IsOutdated and
// ScaleDown are set for a set with surplus machines.
func (p *pass) readDisruption(ctx context.Context) error {
	s := &p.state
	s.Disruption = Disruption{}
	if !s.mayDisrupt(p.live) {
		return nil
	}
	_, others := s.splitSteady()
	concerned, err := p.Ledger.MayDeny(ctx, p.key.Namespace, others)
	if err != nil {
		return err
	}
	if concerned {
		s.Decide = p.checkBudgets(ctx)
	}
	if p.deployment == nil || p.live <= int(s.Set.ReplicasOrDefault()) {
		return nil
	}
	return p.readRollout(ctx)
}

func (p *pass) checkBudgets(ctx context.Context) func([]disruption.Candidate) ([]disruption.Candidate,
	[]disruption.Denial) {
	return func(candidates []disruption.Candidate) ([]disruption.Candidate, []disruption.Denial) {
		may, denied, err := p.Ledger.Check(ctx, asker(p.key), candidates)
		if err != nil {
			for _, c := range candidates {
				denied = append(denied, disruption.Denial{Candidate: c, Explanation: err.Error()})
			}
			return nil, denied
		}
		return may, denied
	}
}

// mayDisrupt reports whether a plan may disrupt a machine, so that budgets must be read. live is the number of machines
// that are not being deleted.
func (s *State) mayDisrupt(live int) bool {
	_, others := s.splitSteady()
	return s.Set.Spec.Template.Spec.ExpireAfter != nil || live > int(s.Set.ReplicasOrDefault()) ||
		slices.ContainsFunc(others, func(m *v1beta1.Machine) bool {
			return machinestate.IsLive(m) && (machinestate.ToBeReplaced(m) || machinestate.NeedsReboot(m) ||
				machinestate.HasReplaceAnnotation(m))
		})
}

// readRollout determines whether the set is outdated, and how many machines exceed the maximum of a rollout. The excess
// is deleted as a scale-down.
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
			s.IsOutdated = true
			newer += countLive(machines)
		}
	}
	replicas := max(0, d.ReplicasOrDefault())
	limits, err := bounds.ForDeployment(d)
	if err != nil || !d.DeletionTimestamp.IsZero() {
		return nil
	}
	surge := int(limits.MaxSurge)
	if s.IsOutdated {
		surge = min(surge, newer) // A rollout creates its surge in a newer revision.
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

// grant reserves room for the machines that need it and returns the machines that may be disrupted. Another controller
// may have taken the room since the plan was made. The caller must call Ledger.Settle for each returned machine.
func (p *pass) grant(ctx context.Context, plan Plan, machines []*v1beta1.Machine) ([]*v1beta1.Machine, error) {
	var candidates []disruption.Candidate
	for _, m := range machines {
		if c, asked := plan.permitted[m.UID]; asked {
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
		_, asked := plan.permitted[m.UID]
		return asked && !slices.ContainsFunc(granted, func(c disruption.Candidate) bool { return c.Machine.UID == m.UID })
	}), nil
}

// deniedMessage explains denied disruptions. The message names only the alphabetically first machine, and does not say
// how many there are, so that it changes rarely.
func deniedMessage(denied []disruption.Denial) string {
	first := slices.MinFunc(denied, func(a, b disruption.Denial) int {
		return cmp.Compare(a.Machine.Name, b.Machine.Name)
	})
	return fmt.Sprintf("Machine %s must not be disrupted now: %s.", first.Machine.Name, first.Summary())
}

// waitingSpacing delays passes over sets that wait for room, because several disruptions may end at once.
const waitingSpacing = 200 * time.Millisecond

func asker(key types.NamespacedName) disruption.Asker {
	return disruption.Asker{Kind: "MachineSet", NamespacedName: key}
}

// waitingSets returns the sets in the object's namespace that wait for room in a budget.
func (r *Reconciler) waitingSets(_ context.Context, o client.Object) []reconcile.Request {
	return r.Ledger.Requests("MachineSet", o.GetNamespace())
}
