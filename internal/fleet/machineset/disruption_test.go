package machineset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// registered has a Node.
func registered(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{Name: m.Name} }

func exempt(m *v1beta1.Machine) { annotated(v1beta1.AnnotationDoNotDisrupt, "")(m) }

func marked(m *v1beta1.Machine) { annotated(v1beta1.AnnotationReplace, "")(m) }

func expiring(set *v1beta1.MachineSet) {
	set.Spec.Template.Spec.ExpireAfter = &metav1.Duration{Duration: time.Hour}
}

// under returns the state of a set whose machines are in a budget, each time that it is asked with nothing granted.
func under(t *testing.T, limit string, s State, change ...func(*State)) State {
	t.Helper()
	b, err := disruption.Parse(&v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse(limit)}})
	if err != nil {
		t.Fatal(err)
	}
	s.Ask = func(cs []disruption.Candidate) ([]disruption.Candidate, []disruption.Denial) {
		if !s.mayDisrupt(countLive(s.Machines)) {
			t.Errorf("budgets would not be read, and are asked about %s", cs[0].Machine.Name)
		}
		return disruption.NewView([]*disruption.Budget{b}, s.Machines, nil, s.Now).Ask(cs, nil)
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// Rules: disruption-asks-budgets, scale-down-asks-no-budget, exempt-from-disruption.
func TestWhatASetAsksBudgetsAbout(t *testing.T) {
	outdated := func(s *State) { s.Outdated = true }
	scaledDown := func(n int) func(*State) { return func(s *State) { s.Outdated, s.ScaleDown = true, n } }
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
		{"a scale-down asks none", under(t, "0", stateOf(aSet(1), three()...)), "delete m0 m1"},
		{"a rollout does", under(t, "1", stateOf(aSet(0), three()...), outdated), "delete m0; deny m1 m2; wait 30s"},
		{"none may go", under(t, "0", stateOf(aSet(1), three()...), outdated), "deny m0 m1; wait 30s"},
		{"a scale-down during a rollout", under(t, "0", stateOf(aSet(1), three()...), scaledDown(1)),
			"delete m0; deny m1; wait 30s"},
		{"one without a Node disrupts nothing", under(t, "0", stateOf(aSet(0), several("m", 2, up)...), outdated),
			"delete m0 m1"},
		{"another goes in place of an exempt one", under(t, "3", stateOf(aSet(2),
			with(newMachine("a", up, registered, exempt, created(9*time.Hour)), three()[:2]...)...), outdated), "delete m0"},
		{"a scale-down takes an exempt one last", under(t, "3", stateOf(aSet(0), newMachine("a", up, registered, exempt))),
			"delete a"},
		{"a rollout never", under(t, "3", stateOf(aSet(0), newMachine("a", up, registered, exempt)), outdated),
			"deny a; wait 30s"},

		{"a remediation asks", under(t, "0", stateOf(aSet(1), newMachine("a", broken, registered))), "deny a; wait 30s"},
		{"it is allowed", under(t, "1", stateOf(aSet(1), newMachine("a", broken, registered))), "replace a"},
		{"one that never had a Node is replaced", under(t, "0", stateOf(aSet(1), newMachine("a", broken))), "replace a"},
		{"one whose instance is gone is replaced", under(t, "0", stateOf(aSet(1), newMachine("a", lost, registered))),
			"replace a"},
		{"an exempt one is not", under(t, "1", stateOf(aSet(1), newMachine("a", broken, registered, exempt))),
			"deny a; wait 30s"},
		{"no more is asked for than may be in flight",
			under(t, "0", stateOf(aSet(3), several("m", 3, broken, registered)...)), "deny m0; wait 30s"},
		{"one that is leaving uses the room", under(t, "1", stateOf(aSet(2), newMachine("a", broken, registered),
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

// Rule: urgent-disruption-first. What a plan is about to disrupt keeps its turn also while the plan has to wait.
func TestAPostponedPlanKeepsItsTurn(t *testing.T) {
	machines := several("m", 3, up, registered)
	plan := Decide(under(t, "1", stateOf(aSet(0), machines...), func(s *State) { s.Outdated = true })).
		withoutCounting(time.Second)
	if len(plan.Delete) != 0 || len(plan.planned) != 1 || plan.planned[0].Machine != machines[0] {
		t.Errorf("deletes %v, and has planned %v", plan.Delete, plan.planned)
	}
	plan = Decide(under(t, "1", stateOf(aSet(1, expiring), newMachine("old", up, registered, created(9*time.Hour)))))
	if len(plan.planned) != 0 {
		t.Errorf("to mark a machine takes the turn of %v", plan.planned)
	}
}

// Rules: expired-machines-are-exchanged, exchange-makes-the-other-first.
func TestASetExchangesMachines(t *testing.T) {
	alone := func(s *State) { s.Alone, s.Exchanges = true, 1 }
	many := func(s *State) { s.Exchanges = 2 }
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
		{"nothing is to do", under(t, "5", stateOf(aSet(2), two...), alone), "settled"},
		{"another one is made first", under(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), alone),
			"create 1"},
		{"which is waited for", under(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked),
			newMachine("new")), alone), "settled"},
		{"then it goes", under(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked),
			newMachine("new", up)), alone), "delete m"},
		{"a budget denies it", under(t, "0", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), alone),
			"deny m; wait 30s"},
		{"and denies it when the other one is made", under(t, "0", stateOf(aSet(2), two[0],
			newMachine("m", up, registered, marked), newMachine("new", up)), alone), "deny m; wait 30s"},
		{"in the set of a deployment, that makes the other one",
			under(t, "5", stateOf(aSet(2), two[0], newMachine("m", up, registered, marked)), many), "settled"},
		{"frozen it exchanges none", under(t, "5", stateOf(aSet(1, frozen), newMachine("m", up, registered, marked)), alone),
			"but FrozenByLabel"},

		{"too old", under(t, "5", stateOf(aSet(2, expiring), old("a", 2*time.Hour), old("b", time.Minute)), many),
			"update a; wait 54m21.36s"},
		{"the oldest first", under(t, "5", stateOf(aSet(3, expiring), old("a", 2*time.Hour), old("b", 3*time.Hour),
			old("c", 4*time.Hour)), many), "update b c"},
		{"not more than at a time", under(t, "5", stateOf(aSet(3, expiring), old("a", 2*time.Hour),
			old("b", 3*time.Hour, annotated(v1beta1.AnnotationReplace, disruption.Expired)), old("c", 4*time.Hour)), many),
			"update c"},
		{"within the budget", under(t, "1", stateOf(aSet(3, expiring), old("a", 2*time.Hour), old("b", 3*time.Hour)), many),
			"update b; deny a; create 1; wait 30s"},
		{"no longer too old", under(t, "5", stateOf(aSet(1), newMachine("a", up, registered,
			annotated(v1beta1.AnnotationReplace, disruption.Expired))), many), "update a"},
		{"somebody's wish stays", under(t, "5", stateOf(aSet(1), newMachine("a", up, registered, marked)), many), "settled"},
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
func TestMachinesOfOneAgeExpireApart(t *testing.T) {
	spec := &v1beta1.MachineSpec{ExpireAfter: &metav1.Duration{Duration: 1000 * time.Hour}}
	tenths := map[int]int{}
	for _, m := range several("machine-", 1000, up) {
		at := expiresAt(m, spec).Sub(m.CreationTimestamp.Time)
		if at <= 900*time.Hour || at > 1000*time.Hour {
			t.Fatalf("it expires after %s", at)
		}
		tenths[int((at-900*time.Hour)/(10*time.Hour))]++
	}
	for tenth, n := range tenths {
		if n > 200 {
			t.Errorf("%d of 1000 expire in one hundredth of their time, the %d. of ten", n, tenth)
		}
	}
}
