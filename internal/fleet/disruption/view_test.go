package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/machinestates"
)

var noon = time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)

func machine(name, pool string, changes ...func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name),
		Labels: map[string]string{"pool": pool}, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec:   v1beta1.MachineSpec{ProviderID: "sim:///" + name},
		Status: v1beta1.MachineStatus{Phase: v1beta1.MachineRunning, NodeRef: &v1beta1.NodeRef{Name: name}}}
	for _, change := range changes {
		change(m)
	}
	return machinestates.Must(m)
}

func leaving(m *v1beta1.Machine) { at := metav1.NewTime(noon); m.DeletionTimestamp = &at }

// specChanged gives a machine a new spec that its provider has not processed yet.
func specChanged(m *v1beta1.Machine) { upToDate(m); m.Generation = 2 }

func nodeless(m *v1beta1.Machine) { m.Status.NodeRef = nil }

func annotated(key, value string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value) }
}

func condition(kind string, status metav1.ConditionStatus, reason string, ago time.Duration) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			LastTransitionTime: metav1.NewTime(noon.Add(-ago)), ObservedGeneration: m.Generation})
	}
}

var upToDate = condition(v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate, 0)

// remediated adds the condition of a machine that a health check found unhealthy the given time ago.
func remediated(ago time.Duration) func(*v1beta1.Machine) {
	return condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, v1beta1.ReasonMachineHealthCheck, ago)
}

func failed(reason v1beta1.MachineFailureReason) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, reason
	}
}

func tornDown(reason v1beta1.MachineFailureReason) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		leaving(m)
		m.Status.Phase, m.Status.FailureReason = v1beta1.MachineDeleting, reason
	}
}

// Rule: what-counts-as-disrupted.
func TestOf(t *testing.T) {
	for name, test := range map[string]struct {
		machine *v1beta1.Machine
		want    v1beta1.DisruptionReason // empty if the machine is not disrupted
	}{
		"in service":                   {machine("m", "a"), ""},
		"being deleted":                {machine("m", "a", leaving), v1beta1.DisruptionRollout},
		"being deleted without a Node": {machine("m", "a", leaving, nodeless), ""},
		"being deleted with a delete mark": {machine("m", "a", leaving, annotated(v1beta1.AnnotationDeleteMachine, "")),
			""},
		"instance vanished":                    {machine("m", "a", leaving, failed(v1beta1.FailureInstanceVanished)), ""},
		"instance vanished, in phase Deleting": {machine("m", "a", tornDown(v1beta1.FailureInstanceVanished)), ""},
		"failed and in phase Deleting": {machine("m", "a", tornDown(v1beta1.FailureJoinClusterTimeout)),
			v1beta1.DisruptionRemediation},
		"failed and being deleted": {machine("m", "a", leaving, failed(v1beta1.FailureCreateError)),
			v1beta1.DisruptionRemediation},
		"failed and not being deleted": {machine("m", "a", failed(v1beta1.FailureCreateError)), ""},
		"marked for replacement, being deleted": {machine("m", "a", leaving, annotated(v1beta1.AnnotationReplace, "")),
			v1beta1.DisruptionReplace},
		"too old, being deleted": {machine("m", "a", leaving, annotated(v1beta1.AnnotationReplace, ExpiredValue)),
			v1beta1.DisruptionExpiry},
		"marked for replacement": {machine("m", "a", annotated(v1beta1.AnnotationReplace, "")), ""},
		"up to date":             {machine("m", "a", upToDate), ""},
		"being updated in place": {machine("m", "a", condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse,
			v1beta1.ReasonUpdating, 0), func(m *v1beta1.Machine) {
			m.Status.Phase = v1beta1.MachineUpdating
		}), v1beta1.DisruptionInPlaceUpdate},
		"update in place not begun": {machine("m", "a", upToDate, func(m *v1beta1.Machine) { m.Generation = 2 }),
			v1beta1.DisruptionInPlaceUpdate},
		"update rejected, and Ready": {machine("m", "a",
			condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady, 0),
			condition(v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUnsupportedChange, 0)), ""},
	} {
		got, is := ReasonOf(test.machine)
		if got != test.want || is != (test.want != "") {
			t.Errorf("%s: %q %t, want %q", name, got, is, test.want)
		}
	}
}

// budget returns a budget for one pool, or for all machines if pool is "". If no reasons are given, the budget limits
// disruptions for any reason.
func budget(t *testing.T, name, pool, limit string, reasons ...v1beta1.DisruptionReason) *Budget {
	t.Helper()
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse(limit), Reasons: reasons}}
	if pool != "" {
		b.Spec.Selector.MatchLabels = map[string]string{"pool": pool}
	}
	parsed, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func candidates(reason v1beta1.DisruptionReason, machines ...*v1beta1.Machine) (cs []Candidate) {
	for _, m := range machines {
		cs = append(cs, Candidate{Machine: m, Reason: reason})
	}
	return cs
}

func several(n int, prefix, pool string, changes ...func(*v1beta1.Machine)) (machines []*v1beta1.Machine) {
	for i := range n {
		machines = append(machines, machine(fmt.Sprint(prefix, i), pool, changes...))
	}
	return machines
}

func namesOf(cs []Candidate) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.Machine.Name
	}
	return strings.Join(names, " ")
}

// Rules: every-budget-must-have-room, budgets-count-all-disruption, exempt-from-disruption.
func TestAsk(t *testing.T) {
	const rollout, remediation = v1beta1.DisruptionRollout, v1beta1.DisruptionRemediation
	ten := several(10, "m", "a")
	for name, test := range map[string]struct {
		budgets  []*Budget
		machines []*v1beta1.Machine
		ask      []Candidate
		others   []Candidate
		granted  string
		why      string // explanation for the first denied candidate
	}{
		"without a budget": {nil, ten, candidates(rollout, ten[:3]...), nil, "m0 m1 m2", ""},
		"room for two": {[]*Budget{budget(t, "two", "", "2")}, ten, candidates(rollout, ten[:3]...), nil, "m0 m1",
			"MachineDisruptionBudget two allows no more disruptions now (reason Rollout): 2 of 10 machines disrupted, at most 2 allowed"},
		"a percentage": {[]*Budget{budget(t, "p", "", "15%")}, ten, candidates(rollout, ten[:3]...), nil, "m0",
			"MachineDisruptionBudget p allows no more disruptions now (reason Rollout): 1 of 10 machines disrupted, at most 1 allowed"},
		"no room at all": {[]*Budget{budget(t, "stop", "", "0")}, ten, candidates(rollout, ten[:1]...), nil, "",
			"MachineDisruptionBudget stop allows no disruption (reason Rollout)"},
		"budget for another reason": {[]*Budget{budget(t, "stop", "", "0", rollout)}, ten, candidates(remediation, ten[0]),
			nil,
			"m0", ""},
		"budget of another pool": {[]*Budget{budget(t, "stop", "b", "0")}, ten, candidates(rollout, ten[0]), nil, "m0", ""},
		"machines being deleted count for whatever reason": {[]*Budget{budget(t, "two", "", "2", rollout)},
			append(several(1, "x", "a", leaving), ten...), candidates(rollout, ten[:3]...), nil, "m0",
			"MachineDisruptionBudget two allows no more disruptions now (reason Rollout): 2 of 11 machines disrupted, at most 2 allowed"},
		"every budget counts": {[]*Budget{budget(t, "wide", "", "5"), budget(t, "a", "a", "1")},
			append(several(2, "n", "b"), ten...), candidates(rollout, append(ten[:2:2], several(2, "n", "b")...)...), nil,
			"m0 n0 n1",
			"MachineDisruptionBudget a allows no more disruptions now (reason Rollout): 1 of 10 machines disrupted, at most 1 allowed"},
		"a machine denied by one budget takes no room in another": {[]*Budget{budget(t, "stop", "b", "0"), budget(t, "one",
			"", "1")},
			append(several(2, "n", "b"), ten...), candidates(rollout, append(several(2, "n", "b"), ten[0])...), nil, "m0",
			"MachineDisruptionBudget stop allows no disruption (reason Rollout)"},
		"a machine without a Node needs no room": {[]*Budget{budget(t, "stop", "", "0")}, several(1, "x", "a", nodeless),
			candidates(rollout, several(1, "x", "a", nodeless)...), nil, "x0", ""},
		"a disrupted machine needs no room": {[]*Budget{budget(t, "stop", "", "0")}, several(1, "x", "a", leaving),
			candidates(rollout, several(1, "x", "a", leaving)...), nil, "x0", ""},
		"an exempt machine": {nil, ten, candidates(rollout, machine("x", "a", annotated(v1beta1.AnnotationDoNotDisrupt, ""))),
			nil,
			"", "machine x has the annotation machinist.dev/do-not-disrupt"},
		"an exempt machine being updated in place": {[]*Budget{budget(t, "ten", "", "10")}, several(1, "x", "a", specChanged),
			candidates(rollout,
				several(1, "x", "a", specChanged, annotated(v1beta1.AnnotationDoNotDisrupt, ""))...), nil,
			"", "machine x0 has the annotation machinist.dev/do-not-disrupt"},
		"an exempt machine being deleted": {[]*Budget{budget(t, "ten", "", "10")}, several(1, "x", "a", leaving),
			candidates(rollout,
				several(1, "x", "a", leaving, annotated(v1beta1.AnnotationDoNotDisrupt, ""))...), nil, "x0", ""},
		"exempt until later": {nil, ten, candidates(rollout,
			machine("x", "a", annotated(v1beta1.AnnotationDoNotDisrupt, "2026-05-05T13:00:00Z"))), nil, "",
			"machine x has the annotation machinist.dev/do-not-disrupt until 2026-05-05T13:00:00Z"},
		"exempt until now": {nil, ten, candidates(rollout,
			machine("x", "a", annotated(v1beta1.AnnotationDoNotDisrupt, "2026-05-05T12:00:00Z"))), nil, "x", ""},
		"exempt until an invalid time": {nil, ten, candidates(rollout,
			machine("x", "a", annotated(v1beta1.AnnotationDoNotDisrupt, "tomorrow"))), nil, "",
			"machine x has the annotation machinist.dev/do-not-disrupt"},
		"a more urgent candidate of another asker": {[]*Budget{budget(t, "one", "", "1")}, ten, candidates(rollout, ten[0]),
			candidates(remediation, ten[1]), "",
			"MachineDisruptionBudget one allows no more disruptions now (reason Rollout): 1 of 10 machines disrupted, at most 1 allowed"},
		"a less urgent candidate of another asker": {[]*Budget{budget(t, "one", "", "1")}, ten, candidates(remediation,
			ten[0]),
			candidates(rollout, ten[1]), "m0", ""},
		"the same machine is a candidate of another asker": {[]*Budget{budget(t, "one", "", "1")}, ten, candidates(rollout,
			ten[0]),
			candidates(remediation, ten[0]), "m0", ""},
		"a candidate of another asker has waited too long": {[]*Budget{budget(t, "one", "", "1")}, ten,
			candidates(remediation, ten[0]),
			[]Candidate{{Machine: ten[1], Reason: v1beta1.DisruptionExpiry, firstDenial: noon.Add(-agingDelay)}}, "",
			"MachineDisruptionBudget one allows no more disruptions now (reason Remediation): 1 of 10 machines disrupted, at most 1 allowed"},
		"the machine that has been broken longest first": {[]*Budget{budget(t, "one", "", "1")}, ten,
			candidates(remediation, machine("a", "a", remediated(time.Minute)), machine("b", "a", remediated(time.Hour))), nil,
			"b",
			"MachineDisruptionBudget one allows no more disruptions now (reason Remediation): 1 of 10 machines disrupted, at most 1 allowed"},
		"a failed machine first": {[]*Budget{budget(t, "one", "", "1")}, ten,
			candidates(remediation, machine("a", "a", remediated(time.Hour)), machine("b", "a",
				condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonWaitingForNode, time.Minute),
				failed(v1beta1.FailureCreateError))), nil, "b",
			"MachineDisruptionBudget one allows no more disruptions now (reason Remediation): 1 of 10 machines disrupted, at most 1 allowed"},
		"the oldest machine first": {[]*Budget{budget(t, "one", "", "1")}, ten,
			candidates(v1beta1.DisruptionExpiry, ten[0], machine("old", "a", func(m *v1beta1.Machine) {
				m.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour))
			})), nil, "old",
			"MachineDisruptionBudget one allows no more disruptions now (reason Expiry): 1 of 10 machines disrupted, at most 1 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			v := NewView(test.budgets, test.machines, nil, noon)
			granted, denied := v.Decide(test.ask, test.others)
			if got := namesOf(granted); got != test.granted {
				t.Errorf("granted %q, want %q", got, test.granted)
			}
			why := ""
			if len(denied) > 0 {
				why = denied[0].Explanation
			}
			if why != test.why || len(granted)+len(denied) != len(test.ask) {
				t.Errorf("%d of %d candidates are denied: %q, want %q", len(denied), len(test.ask), why, test.why)
			}
		})
	}
}

// Rule: budget-says-when-it-changes.
func TestDenialReportsItsEnd(t *testing.T) {
	b, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) {
		s.Selector, s.MaxDisrupted = metav1.LabelSelector{}, intstr.FromInt32(0)
		s.Windows, s.Apply = nightly(), v1beta1.ApplyOutside
	}))
	if err != nil {
		t.Fatal(err)
	}
	m := machine("m", "a")
	_, denied := NewView([]*Budget{b}, []*v1beta1.Machine{m}, nil, noon).Decide(candidates(v1beta1.DisruptionRollout, m), nil)
	const want = "MachineDisruptionBudget b allows no disruption (reason Rollout), until 2026-05-05T20:00:00Z"
	if len(denied) != 1 || denied[0].Explanation != want || denied[0].Summary() != want || !denied[0].IsPersistent {
		t.Errorf("%+v, want %q", denied, want)
	}
	granted, _ := NewView([]*Budget{b}, []*v1beta1.Machine{m}, nil, denied[0].EndTime).Decide(
		candidates(v1beta1.DisruptionRollout, m), nil)
	if len(granted) != 1 {
		t.Error("the disruption is denied after the reported end")
	}
}

// BenchmarkTenThousandBudgets shows that budgets without a candidate cost nothing.
func BenchmarkTenThousandBudgets(b *testing.B) {
	machines := several(1000, "m", "a")
	budgets := make([]*Budget, 10_000)
	for i := range budgets {
		parsed, err := Parse(&v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)},
			Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.Parse("10%"),
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": fmt.Sprint("p", i)}}}})
		if err != nil {
			b.Fatal(err)
		}
		budgets[i] = parsed
	}
	ask := candidates(v1beta1.DisruptionRollout, machines[:10]...)
	b.ReportAllocs()
	for b.Loop() {
		if granted, _ := NewView(budgets, machines, nil, noon).Decide(ask, nil); len(granted) != len(ask) {
			b.Fatal(len(granted))
		}
	}
}

// Rule: every-budget-must-have-room.
func TestBudgetUsesListsOnlyBudgetsThatLimitTheCandidates(t *testing.T) {
	machines := append(several(3, "a", "a"), several(2, "b", "b", leaving)...)
	v := NewView([]*Budget{budget(t, "all", "", "1"), budget(t, "a", "a", "2"), budget(t, "b", "b", "1"),
		budget(t, "rollouts-of-a", "a", "1", v1beta1.DisruptionRollout)}, machines, nil, noon)
	want := []BudgetUse{{Budget: "a", Selected: 3, Allowed: 2}, {Budget: "all", Selected: 5, Disrupted: 2, Allowed: 1}}
	if got := v.BudgetUses(candidates(v1beta1.DisruptionReplace, machines[0])); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
