package machinedeployment

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

func one(replicas int32, change ...func(*Set)) Set {
	s := Set{Name: "a", Replicas: replicas, MinReplicas: replicas, MaxReplicas: replicas, Live: replicas, Ready: replicas,
		Available: replicas}
	for _, f := range change {
		f(&s)
	}
	return s
}

func recorded(n int32) func(*Set) { return func(s *Set) { s.ReplacementSurge = n } }

func markedForReplacement(n int32) func(*Set) { return func(s *Set) { s.MarkedForReplacement = n } }

// Rules: exchange-makes-the-other-first, scale-down-asks-no-budget.
func TestDeploymentReplacesMarkedMachines(t *testing.T) {
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
		"no marked machines": {bounds: surge(1, 0), set: one(5)},
		"the replacements are created first": {bounds: surge(2, 0), set: one(5, markedForReplacement(3)),
			want: "5→7 (replacements)", surge: 2},
		"no more replacements than needed": {bounds: surge(3, 0), set: one(5, markedForReplacement(1)),
			want: "5→6 (replacements)", surge: 1},
		"the replacements must be available": {bounds: surge(2, 2), set: one(7, markedForReplacement(2), live(7, 5)),
			surge: 2, waiting: "5 of 7 machines of the new revision are available"},
		"one replacement is available": {bounds: surge(2, 0), set: one(7, markedForReplacement(2), live(7, 6)),
			want: "7→6 (replaced machines)", surge: 2},
		"all replacements are available": {bounds: surge(2, 0), set: one(7, markedForReplacement(2)),
			want: "7→5 (replaced machines)", surge: 2},
		"the set has yet to delete the replaced machines": {bounds: surge(2, 0),
			set: one(5, markedForReplacement(2), live(7, 7), recorded(2)), surge: 2,
			waiting: "set a has yet to delete 2 machines"},
		"not while other machines are being deleted": {bounds: surge(1, 0),
			set:     one(5, markedForReplacement(2), func(s *Set) { s.Deleting = 1 }),
			waiting: "1 machine is being deleted, and the limit is 1 at a time (maxSurge 1 + maxUnavailable 0)"},
		"without surge, marked machines are deleted first": {bounds: surge(0, 2), set: one(5, markedForReplacement(3)),
			want: "5→3 (replaced machines)"},
		"without surge, replacements are created afterwards": {bounds: surge(0, 2), set: one(3, markedForReplacement(1)),
			want: "3→5 (replacements)", waiting: "3 of 5 machines of the new revision are available"},
		"without surge, not while too few are available": {bounds: surge(0, 1),
			set:     one(5, markedForReplacement(2), live(5, 4)),
			waiting: "4 machines are available; while a machine is replaced, at least 4 must stay available (replicas 5 − maxUnavailable 1)"},
		"with strategy OnDelete": {bounds: surge(0, 0), strategy: v1beta1.StrategyOnDelete,
			set:     one(5, markedForReplacement(2)),
			waiting: "with strategy OnDelete, you must delete 2 machines marked for replacement"},
		"not while paused": {bounds: surge(1, 0), set: one(5, markedForReplacement(2)),
			change: func(s *State) { s.Paused = true }},
		"not while budgets deny it": {bounds: surge(1, 0), set: one(5, func(s *Set) { s.Denied = 2 }),
			change: func(s *State) { s.DisruptionDenied = "budget b allows none" }, waiting: "budget b allows none"},
		"scaled down before": {bounds: surge(1, 0), set: one(5, markedForReplacement(2)),
			change: func(s *State) { s.SizedFor, s.Replicas = 5, 3 }, want: "5→3 (more than replicas)"},
		"the set has yet to scale down": {bounds: surge(1, 0), set: one(3, markedForReplacement(2), live(5, 5)),
			change: func(s *State) { s.SizedFor, s.Replicas = 3, 3 }, waiting: "set a has yet to delete 2 machines"},
		"scaled down during a replacement": {bounds: surge(2, 0), set: one(7, markedForReplacement(2), recorded(2)),
			change: func(s *State) { s.Replicas = 3 }, want: "7→3 (more than replicas)", surge: 2},
		"scaled down after a replacement": {bounds: surge(2, 0), set: one(5, recorded(2)),
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
			if plan.ReplacementSurge != test.surge {
				t.Errorf("replacement surge %d, want %d", plan.ReplacementSurge, test.surge)
			}
			if got != test.want || plan.WaitMessage != test.waiting {
				t.Errorf("scales %q, want %q\nwaiting %q,\n   want %q", got, test.want, plan.WaitMessage, test.waiting)
			}
		})
	}
}

// Rule: denied-rollout-does-not-begin.
func TestDeniedRolloutDoesNotBegin(t *testing.T) {
	s := State{Strategy: v1beta1.StrategyRollingUpdate, Replicas: 5, Bounds: Bounds{MaxSurge: 1}, SizedFor: 5,
		CurrentIndex:     1,
		DisruptionDenied: "MachineDisruptionBudget b allows no disruption (reason Rollout)",
		Sets:             []Set{one(5), {Name: "b"}}}
	plan := MakePlan(s)
	const want = "MachineDisruptionBudget b allows no disruption (reason Rollout), with 5 machines of an old revision left"
	if len(plan.Scales) > 0 || plan.WaitMessage != want {
		t.Errorf("scales %v, waiting %q", plan.Scales, plan.WaitMessage)
	}
	s.Replicas = 7
	if plan = MakePlan(s); len(plan.Scales) != 1 || plan.Scales[0].To != 7 {
		t.Errorf("a scale-up results in %v", plan.Scales)
	}
}

// Rule: denied-hand-over-taken-back.
func TestDeniedHandOverIsTakenBack(t *testing.T) {
	s := bySelection(func(old, _ *Set) { old.BySelection, old.Denied = false, 4 })
	plan := MakePlan(s)
	if role := plan.Roles[0]; role.MoveTo != "b" || role.Moves != 0 || len(plan.Scales) != 1 || plan.Scales[0].To != 4 {
		t.Errorf("role %+v, scales %v", role, plan.Scales)
	}
	s.Sets[0].Denied = 3
	if plan = MakePlan(s); plan.Roles[0].Moves != 2 {
		t.Errorf("if one machine is allowed, the order is %+v", plan.Roles[0])
	}
}

// Rule: denied-rollout-does-not-begin.
func TestWaitMessageNamesTheDenial(t *testing.T) {
	m := machine("a1", 1, isReady)
	denied := []disruption.Denial{{Candidate: disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRollout},
		Explanation: "budget b allows none"}}
	for name, test := range map[string]struct {
		waiting string
		view    view
		want    string
	}{
		"nothing is denied": {"0 of 1 available", view{}, "0 of 1 available"},
		"nothing waits":     {"", view{denied: denied}, ""},
		"a denial": {"0 of 1 available", view{denied: denied},
			"0 of 1 available; " + denied[0].Summary()},
		"the message names the denial": {"x", view{denied: denied, state: State{DisruptionDenied: "x"}}, "x"},
	} {
		if got := test.view.waitingFor("web", test.waiting); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// stored is a cluster that contains a budget and machines.
type stored struct {
	client.Reader
	budget   v1beta1.MachineDisruptionBudget
	machines []*v1beta1.Machine
}

func (s stored) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.SetResourceVersion("1")
	switch into := into.(type) {
	case *v1beta1.MachineList:
		for _, m := range s.machines {
			into.Items = append(into.Items, *m.DeepCopy())
		}
	case *v1beta1.MachineDisruptionBudgetList:
		into.Items = append(into.Items, s.budget)
	}
	return nil
}

// Only an update in place has the deployment itself as the asker. In other rollouts, the sets wait for room.
//
// Rule: denied-hand-over-taken-back.
func TestDeploymentWaitsForRoomOnlyWithUpdatesInPlace(t *testing.T) {
	for strategy, want := range map[v1beta1.DeploymentStrategyType]int{
		v1beta1.StrategyInPlace: 1, v1beta1.StrategyRollingUpdate: 0,
	} {
		d, old := deployment("b"), setOf("a", 1, noon)
		d.Spec.Strategy.Type = strategy
		m := machine("a1", 1, isReady)
		m.Namespace, m.Status.NodeRef = d.Namespace, &v1beta1.NodeRef{Name: "a1"}
		cluster := stored{machines: []*v1beta1.Machine{m}, budget: v1beta1.MachineDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "none", UID: "none", ResourceVersion: "1"},
			Spec:       v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.FromInt32(0)}}}
		ledger := disruption.New(disruption.Options{Client: cluster, LiveReader: cluster,
			Clock: clocktesting.NewFakePassiveClock(noon), CacheVersion: func() string { return "1" }})
		p := &pass{Reconciler: New(Options{Ledger: ledger}), deployment: d, now: noon}
		v := viewed(t, d, []*v1beta1.MachineSet{old, setOf("b", 2, noon)}, map[types.UID][]*v1beta1.Machine{old.UID: {m}})
		v.bounds.MaxUnavailable = 1
		if err := p.readDisruption(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if got := len(ledger.Requests("MachineDeployment", d.Namespace)); got != want || len(v.denied) != 1 {
			t.Errorf("%s: %d deployments wait for room, want %d; denied: %v", strategy, got, want, v.denied)
		}
	}
}
