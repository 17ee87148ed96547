package machineset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

func registered(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{Name: m.Name} }

func exempt(m *v1beta1.Machine) { annotated(v1beta1.AnnotationDoNotDisrupt, "")(m) }

func marked(m *v1beta1.Machine) { annotated(v1beta1.AnnotationReplace, "")(m) }

func expiring(set *v1beta1.MachineSet) {
	set.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Hour}
}

// withBudget returns the state of a set under a budget. For each call of Decide, the budget forgets the disruptions
// that it granted before.
func withBudget(t *testing.T, limit string, s State, change ...func(*State)) State {
	t.Helper()
	b, err := disruption.Parse(&v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse(limit)}})
	if err != nil {
		t.Fatal(err)
	}
	s.Decide = func(cs []disruption.Candidate) ([]disruption.Candidate, []disruption.Denial) {
		if !s.mayDisrupt(countLive(s.Machines)) {
			t.Errorf("a pass would not read budgets, but the plan asks about %s", cs[0].Machine.Name)
		}
		return disruption.NewView([]*disruption.Budget{b}, s.Machines, nil, s.Now).Decide(cs, nil)
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// Rules: disruption-asks-budgets, scale-down-asks-no-budget, exempt-from-disruption.
func TestDisruptionsNeedRoomInBudgets(t *testing.T) {
	outdated := func(s *State) { s.IsOutdated = true }
	scaledDown := func(n int) func(*State) { return func(s *State) { s.IsOutdated, s.ScaleDown = true, n } }
	three := func(options ...machineOption) []*v1beta1.Machine {
		return several("m", 3, append([]machineOption{up, registered}, options...)...)
	}
	with := func(m *v1beta1.Machine, more ...*v1beta1.Machine) []*v1beta1.Machine {
		return append([]*v1beta1.Machine{m}, more...)
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"a scale-down needs no room", withBudget(t, "0", stateOf(aSet(1), three()...)), "delete m0 m1"},
		{"a rollout needs room",
			withBudget(t, "1", stateOf(aSet(0), three()...), outdated), "delete m0; deny m1 m2; wait 30s"},
		{"a budget denies all machines", withBudget(t, "0", stateOf(aSet(1), three()...), outdated), "deny m0 m1; wait 30s"},
		{"a scale-down during a rollout", withBudget(t, "0", stateOf(aSet(1), three()...), scaledDown(1)),
			"delete m0; deny m1; wait 30s"},
		{"the deletion of a machine without a Node disrupts nothing",
			withBudget(t, "0", stateOf(aSet(0), several("m", 2, up)...), outdated),
			"delete m0 m1"},
		{"another machine is deleted in place of an exempt one", withBudget(t, "3", stateOf(aSet(2),
			with(newMachine("a", up, registered, exempt, created(9*time.Hour)), three()[:2]...)...), outdated), "delete m0"},
		{"a scale-down deletes an exempt machine last",
			withBudget(t, "3", stateOf(aSet(0), newMachine("a", up, registered, exempt))),
			"delete a"},
		{"a rollout never deletes an exempt machine",
			withBudget(t, "3", stateOf(aSet(0), newMachine("a", up, registered, exempt)), outdated),
			"deny a; wait 30s"},

		{"a budget denies a remediation", withBudget(t, "0", stateOf(aSet(1), newMachine("a", broken, registered))),
			"deny a; wait 30s"},
		{"a budget allows a remediation",
			withBudget(t, "1", stateOf(aSet(1), newMachine("a", broken, registered))), "replace a"},
		{"a machine that never had a Node is replaced",
			withBudget(t, "0", stateOf(aSet(1), newMachine("a", broken))), "replace a"},
		{"a machine whose instance is gone is replaced",
			withBudget(t, "0", stateOf(aSet(1), newMachine("a", lost, registered))),
			"replace a"},
		{"an exempt machine is not replaced",
			withBudget(t, "1", stateOf(aSet(1), newMachine("a", broken, registered, exempt))),
			"deny a; wait 30s"},
		{"no more machines are denied than may be in flight",
			withBudget(t, "0", stateOf(aSet(3), several("m", 3, broken, registered)...)), "deny m0; wait 30s"},
		{"a machine being deleted uses the room", withBudget(t, "1", stateOf(aSet(2), newMachine("a", broken, registered),
			newMachine("b", up, registered, leaving))), "deny a; create 1; wait 30s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Decide(test.state)
			if got := p.String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

// Rule: urgent-disruption-first.
func TestPostponedPlanKeepsPriority(t *testing.T) {
	machines := several("m", 3, up, registered)
	plan := Decide(withBudget(t, "1", stateOf(aSet(0), machines...), func(s *State) { s.IsOutdated = true })).
		withoutCounting(time.Second)
	if len(plan.Delete) != 0 || len(plan.plannedDisruptions) != 1 || plan.plannedDisruptions[0].Machine != machines[0] {
		t.Errorf("the plan deletes %v, and has planned %v", plan.Delete, plan.plannedDisruptions)
	}
	plan = Decide(withBudget(t, "1", stateOf(aSet(1, expiring), newMachine("old", up, registered, created(9*time.Hour)))))
	if len(plan.plannedDisruptions) != 0 {
		t.Errorf("a plan that only marks a machine has planned %v", plan.plannedDisruptions)
	}
}

// Rules: expired-machines-are-exchanged, exchange-makes-the-other-first.
func TestSetReplacesMarkedAndExpiredMachines(t *testing.T) {
	standalone := func(s *State) { s.Standalone, s.MaxReplacing = true, 1 }
	ofDeployment := func(s *State) { s.MaxReplacing = 2 }
	two := []*v1beta1.Machine{newMachine("a", up, registered), newMachine("b", up, registered)}
	old := func(name string, age time.Duration, options ...machineOption) *v1beta1.Machine {
		limited := func(m *v1beta1.Machine) { m.Spec.ExpireAfter = &metav1.Duration{Duration: time.Hour} }
		return newMachine(name, append([]machineOption{up, registered, created(age), limited}, options...)...)
	}
	for _, test := range []struct {
		name  string
		state State
		want  string
	}{
		{"there is nothing to do", withBudget(t, "5", stateOf(aSet(2), two...), standalone), "settled"},
		{"a replacement is created first",
			withBudget(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), standalone),
			"create 1"},
		{"the set waits for the replacement",
			withBudget(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked),
				newMachine("new")), standalone), "settled"},
		{"then the marked machine is deleted",
			withBudget(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked),
				newMachine("new", up)), standalone), "delete m"},
		{"a budget denies the replacement",
			withBudget(t, "0", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), standalone),
			"deny m; wait 30s"},
		{"a budget denies the deletion after the replacement was created", withBudget(t, "0", stateOf(aSet(2), two[0],
			newMachine("m", up, registered, marked), newMachine("new", up)), standalone), "deny m; wait 30s"},
		{"the set of a deployment leaves the replacement to the deployment",
			withBudget(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), ofDeployment), "settled"},
		{"a frozen set replaces no machine",
			withBudget(t, "5", stateOf(aSet(1, frozen), newMachine("m", up, registered, marked)), standalone),
			"but FrozenByLabel"},

		{"a machine is too old",
			withBudget(t, "5", stateOf(aSet(2, expiring), old("a", 2*time.Hour), old("b", time.Minute)), ofDeployment),
			"update a; wait 54m21.36s"},
		{"the oldest first", withBudget(t, "5", stateOf(aSet(3, expiring), old("a", 2*time.Hour), old("b", 3*time.Hour),
			old("c", 4*time.Hour)), ofDeployment), "update b c"},
		{"no more than may be replaced at a time", withBudget(t, "5", stateOf(aSet(3, expiring), old("a", 2*time.Hour),
			old("b", 3*time.Hour, annotated(v1beta1.AnnotationReplace, disruption.ExpiredValue)), old("c", 4*time.Hour)),
			ofDeployment),
			"update c"},
		{"within the budget",
			withBudget(t, "1", stateOf(aSet(3, expiring), old("a", 2*time.Hour), old("b", 3*time.Hour)), ofDeployment),
			"update b; deny a; create 1; wait 30s"},
		{"a machine is no longer too old", withBudget(t, "5", stateOf(aSet(1), newMachine("a", up, registered,
			annotated(v1beta1.AnnotationReplace, disruption.ExpiredValue))), ofDeployment), "update a"},
		{"a mark set by hand stays",
			withBudget(t, "5", stateOf(aSet(1), newMachine("a", up, registered, marked)), ofDeployment), "settled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Decide(test.state)
			if got := p.String(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
			for _, u := range p.Update {
				if was, is := has(u.From.Annotations, v1beta1.AnnotationReplace), has(u.To.Annotations,
					v1beta1.AnnotationReplace); was == is {
					t.Errorf("%s is marked: %t, as before", u.From.Name, is)
				}
			}
		})
	}
}

// Rule: expiry-is-spread.
func TestMachinesOfTheSameAgeExpireAtDifferentTimes(t *testing.T) {
	spec := &v1beta1.MachineSpec{ExpireAfter: &metav1.Duration{Duration: 1000 * time.Hour}}
	tenths := map[int]int{}
	for _, m := range several("machine-", 1000, up) {
		at := expiresAt(m, spec).Sub(m.CreationTimestamp.Time)
		if at <= 900*time.Hour || at > 1000*time.Hour {
			t.Fatalf("the machine expires after %s", at)
		}
		tenths[int((at-900*time.Hour)/(10*time.Hour))]++
	}
	for tenth, n := range tenths {
		if n > 200 {
			t.Errorf("%d of 1000 machines expire within the same 10 hours (part %d of 10)", n, tenth)
		}
	}
}
