package machinedeployment

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// one is a set of that many machines, all of them available.
func one(replicas int32, change ...func(*Set)) Set {
	s := Set{Name: "a", Replicas: replicas, Least: replicas, Most: replicas, Live: replicas, Ready: replicas,
		Available: replicas}
	for _, f := range change {
		f(&s)
	}
	return s
}

func recorded(n int32) func(*Set) { return func(s *Set) { s.ExchangeSurge = n } }

func exchanged(n int32) func(*Set) { return func(s *Set) { s.Exchanged = n } }

// Rules: exchange-makes-the-other-first, scale-down-asks-no-budget. The numbers of a set go up and down again, within
// the bounds of a rollout.
func TestADeploymentExchangesMachines(t *testing.T) {
	surge := func(s, u int32) Bounds { return Bounds{MaxSurge: s, MaxUnavailable: u} }
	live := func(live, available int32) func(*Set) {
		return func(s *Set) { s.Live, s.Ready, s.Available = live, available, available }
	}
	for name, test := range map[string]struct {
		bounds   Bounds
		strategy v1beta1.DeploymentStrategyType
		set      Set
		change   func(*State)
		want     string // the change of the set's replicas
		surge    int32
		waiting  string
	}{
		"nothing to exchange":    {bounds: surge(1, 0), set: one(5)},
		"the other ones first":   {bounds: surge(2, 0), set: one(5, exchanged(3)), want: "5→7 (in exchange)", surge: 2},
		"no more than necessary": {bounds: surge(3, 0), set: one(5, exchanged(1)), want: "5→6 (in exchange)", surge: 1},
		"which must be available": {bounds: surge(2, 2), set: one(7, exchanged(2), live(7, 5)),
			surge: 2, waiting: "5 of 7 machines of the new revision available"},
		"one of them is": {bounds: surge(2, 0), set: one(7, exchanged(2), live(7, 6)), want: "7→6 (exchanged)", surge: 2},
		"all are":        {bounds: surge(2, 0), set: one(7, exchanged(2)), want: "7→5 (exchanged)", surge: 2},
		"they have to go": {bounds: surge(2, 0), set: one(5, exchanged(2), live(7, 7), recorded(2)),
			surge: 2, waiting: "2 machines to be deleted, to be exchanged"},
		"while others go": {bounds: surge(1, 0), set: one(5, exchanged(2), func(s *Set) { s.Deleting = 1 }),
			waiting: "1 machine being deleted, at most 1 may be at a time (maxSurge 1 + maxUnavailable 0)"},
		"without surge they go first": {bounds: surge(0, 2), set: one(5, exchanged(3)), want: "5→3 (exchanged)"},
		"and others are made": {bounds: surge(0, 2), set: one(3, exchanged(1)), want: "3→5 (in exchange)",
			waiting: "3 of 5 machines of the new revision available"},
		"unless too few are available": {bounds: surge(0, 1), set: one(5, exchanged(2), live(5, 4)),
			waiting: "4 available, and at least 4 must be (replicas 5 − maxUnavailable 1) before a machine is exchanged"},
		"by people": {bounds: surge(0, 0), strategy: v1beta1.StrategyOnDelete, set: one(5, exchanged(2)),
			waiting: "someone has to delete 2 machines that must be exchanged"},
		"not while it is paused": {bounds: surge(1, 0), set: one(5, exchanged(2)), change: func(s *State) { s.Paused = true }},
		"not while budgets deny it": {bounds: surge(1, 0), set: one(5, func(s *Set) { s.Denied = 2 }),
			change: func(s *State) { s.DisruptionDenied = "budget b allows none" }, waiting: "budget b allows none"},
		"people want fewer": {bounds: surge(1, 0), set: one(5, exchanged(2)), change: func(s *State) { s.SizedFor, s.Replicas = 5, 3 },
			want: "5→3 (more than replicas)"},
		"people wanted fewer": {bounds: surge(1, 0), set: one(3, exchanged(2), live(5, 5)),
			change: func(s *State) { s.SizedFor, s.Replicas = 3, 3 }, waiting: "2 machines to be deleted, to be exchanged"},
		"people want fewer in the middle of it": {bounds: surge(2, 0), set: one(7, exchanged(2), recorded(2)),
			change: func(s *State) { s.Replicas = 3 }, want: "7→3 (more than replicas)", surge: 2},
		"people want fewer after it": {bounds: surge(2, 0), set: one(5, recorded(2)),
			change: func(s *State) { s.Replicas = 3 }, want: "5→3 (more than replicas)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Strategy: test.strategy, Replicas: 5, Bounds: test.bounds, SizedFor: 5, Sets: []Set{test.set}}
			if s.Strategy == "" {
				s.Strategy = v1beta1.StrategyRollingUpdate
			}
			if test.change != nil {
				test.change(&s)
			}
			plan, got := MakePlan(s), ""
			for _, scale := range plan.Scales {
				got += scale.String()
			}
			if plan.ExchangeSurge != test.surge {
				t.Errorf("%d machines beyond replicas because of the exchange, want %d", plan.ExchangeSurge, test.surge)
			}
			if got != test.want || plan.Waiting != test.waiting {
				t.Errorf("scales %q, want %q\nwaiting %q,\n   want %q", got, test.want, plan.Waiting, test.waiting)
			}
		})
	}
}

// Rule: denied-rollout-does-not-begin.
func TestARolloutThatBudgetsDenyDoesNotBegin(t *testing.T) {
	s := State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: Bounds{MaxSurge: 1}, SizedFor: 5, Current: 1,
		DisruptionDenied: "MachineDisruptionBudget b allows no disruption (Rollout)", Sets: []Set{one(5), {Name: "b"}}}
	plan := MakePlan(s)
	const want = "MachineDisruptionBudget b allows no disruption (Rollout), with 5 machines of an old revision"
	if len(plan.Scales) > 0 || plan.Waiting != want {
		t.Errorf("scales %v, waiting %q", plan.Scales, plan.Waiting)
	}
	s.Replicas = 7
	if plan = MakePlan(s); len(plan.Scales) != 1 || plan.Scales[0].To != 7 {
		t.Errorf("a scale-up is %v", plan.Scales)
	}
}

// Rule: denied-hand-over-taken-back. A budget that closes after the order was given stops what was not handed over.
func TestAHandOverThatBudgetsDenyIsTakenBack(t *testing.T) {
	s := bySelection(func(old, _ *Set) { old.BySelection, old.Denied = false, 4 })
	plan := MakePlan(s)
	if role := plan.Roles[0]; role.MoveTo != "b" || role.Moves != 0 || len(plan.Scales) != 1 || plan.Scales[0].To != 4 {
		t.Errorf("role %+v, scales %v", role, plan.Scales)
	}
	s.Sets[0].Denied = 3
	if plan = MakePlan(s); plan.Roles[0].Moves != 2 {
		t.Errorf("with one that may go the order is %+v", plan.Roles[0])
	}
}
