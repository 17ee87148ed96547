package disruption

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

func budgetOf(change func(*v1beta1.MachineDisruptionBudgetSpec)) *v1beta1.MachineDisruptionBudget {
	b := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "b"},
		Spec: v1beta1.MachineDisruptionBudgetSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"pool": "db"}},
			MaxDisrupted: intstr.FromInt32(2),
		}}
	if change != nil {
		change(&b.Spec)
	}
	return b
}

func nightly() []v1beta1.DisruptionWindow {
	return []v1beta1.DisruptionWindow{{Schedule: "0 22 * * *", TimeZone: "Europe/Berlin",
		Duration: metav1.Duration{Duration: 8 * time.Hour}}}
}

// Rule: budget-allows-number-or-percentage.
func TestAllowed(t *testing.T) {
	for _, test := range []struct {
		written           string
		selected, allowed int
	}{
		{"0", 100, 0}, {"1", 0, 1}, {"1", 100, 1}, {"7", 3, 7}, {"2147483647", 5, 2147483647},
		{"0%", 100, 0}, {"1%", 0, 1}, {"1%", 99, 1}, {"1%", 100, 1}, {"1%", 199, 1}, {"1%", 200, 2},
		{"10%", 9, 1}, {"10%", 19, 1}, {"10%", 20, 2}, {"33%", 10, 3}, {"50%", 3, 1}, {"99%", 100, 99}, {"100%", 7, 7},
		{"100%", 2_000_000, 2_000_000},
	} {
		b, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.Parse(test.written)
		}))
		if got := b.AllowedDisruptions(test.selected); got != test.allowed || err != nil {
			t.Errorf("%s of %d machines allows %d (%v), want %d", test.written, test.selected, got, err, test.allowed)
		}
	}
}

// Rule: budget-asked-for-its-reasons.
func TestAsks(t *testing.T) {
	every, err := Parse(budgetOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	some, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) {
		s.Reasons = []v1beta1.DisruptionReason{v1beta1.DisruptionRollout, v1beta1.DisruptionExpiry}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range v1beta1.DisruptionReasons {
		if !every.AppliesTo(reason) {
			t.Errorf("a budget without reasons does not apply to %s", reason)
		}
		if want := reason == v1beta1.DisruptionRollout || reason == v1beta1.DisruptionExpiry; some.AppliesTo(reason) != want {
			t.Errorf("a budget for Rollout and Expiry applies to %s: %t", reason, !want)
		}
	}
}

// Rule: budget-in-force-by-windows.
func TestInForce(t *testing.T) {
	night, day := time.Date(2026, 5, 5, 22, 0, 0, 0, time.UTC), time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		windows     []v1beta1.DisruptionWindow
		apply       v1beta1.DisruptionApply
		night, day  bool
		afterNight  string
		noChangeEnd bool
	}{
		"without windows":         {night: true, day: true, noChangeEnd: true},
		"without windows, inside": {apply: v1beta1.ApplyInside, night: true, day: true, noChangeEnd: true},
		"at night":                {windows: nightly(), night: true, afterNight: "2026-05-06T04:00:00Z"},
		"at night, inside": {windows: nightly(), apply: v1beta1.ApplyInside, night: true,
			afterNight: "2026-05-06T04:00:00Z"},
		"outside of the night, so by day": {windows: nightly(), apply: v1beta1.ApplyOutside, day: true,
			afterNight: "2026-05-06T04:00:00Z"},
	} {
		b, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.Windows, s.Apply = test.windows, test.apply
		}))
		if err != nil || b.InForce(night) != test.night || b.InForce(day) != test.day {
			t.Errorf("%s: in force at night %t, by day %t, %v", name, b.InForce(night), b.InForce(day), err)
		}
		next, found := b.NextChange(night)
		if found == test.noChangeEnd || found && next.Format(time.RFC3339) != test.afterNight {
			t.Errorf("%s: the next change is at %v (%t)", name, next, found)
		}
	}
}

// Rule: bad-budget-allows-nothing.
func TestInvalidBudgetAllowsNothing(t *testing.T) {
	database, web := map[string]string{"pool": "db"}, map[string]string{"pool": "web"}
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineDisruptionBudgetSpec)
		wanted string
		all    bool
	}{
		"selector": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Has"}}
		}, "spec.selector: Invalid value", true},
		"maxDisrupted": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.FromString("many")
		}, "spec.maxDisrupted: Invalid value: \"many\"", false},
		"a negative number": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.FromInt32(-1)
		}, "spec.maxDisrupted: Invalid value: \"-1\"", false},
		"a number as a string": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.FromString("3")
		}, "spec.maxDisrupted: Invalid value: \"3\"", false},
		"more than 100%": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.FromString("101%")
		}, "spec.maxDisrupted: Invalid value: \"101%\"", false},
		"a negative percentage": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.MaxDisrupted = intstr.FromString("-5%")
		}, "spec.maxDisrupted: Invalid value: \"-5%\"", false},
		"a window": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.Windows = append(nightly(), v1beta1.DisruptionWindow{Schedule: "0 0 30 2 *",
				Duration: metav1.Duration{Duration: time.Hour}})
		}, "spec.windows[1].schedule: Invalid value: \"0 0 30 2 *\": never matches", false},
		"outside without windows": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.Apply = v1beta1.ApplyOutside
		}, "spec.windows: Required value", false},
		"apply": {func(s *v1beta1.MachineDisruptionBudgetSpec) {
			s.Windows, s.Apply = nightly(), "Around"
		}, "spec.apply: Unsupported value: \"Around\"", false},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) {
				s.MaxDisrupted, s.Reasons = intstr.FromString("50%"), []v1beta1.DisruptionReason{v1beta1.DisruptionRollout}
				test.change(s)
			}))
			if err == nil || !strings.HasPrefix(err.Error(), test.wanted) {
				t.Errorf("%v, want %s", err, test.wanted)
			}
			for hour := range 24 {
				if at := time.Date(2026, 5, 5, hour, 0, 0, 0, time.UTC); !b.InForce(at) {
					t.Errorf("not in force at %v", at)
				}
			}
			if _, found := b.NextChange(time.Unix(1e9, 0)); found || b.AllowedDisruptions(100) != 0 {
				t.Errorf("the budget allows %d machines; it changes: %t", b.AllowedDisruptions(100), found)
			}
			if !b.Selects(database) || b.Selects(web) != test.all {
				t.Errorf("the budget selects its pool: %t, another pool: %t", b.Selects(database), b.Selects(web))
			}
			if !b.AppliesTo(v1beta1.DisruptionRollout) || b.AppliesTo(v1beta1.DisruptionExpiry) {
				t.Error("the budget does not apply to exactly its reasons")
			}
		})
	}
}

func TestEmptySelectorSelectsEveryMachine(t *testing.T) {
	b, err := Parse(budgetOf(func(s *v1beta1.MachineDisruptionBudgetSpec) { s.Selector = metav1.LabelSelector{} }))
	if err != nil || !b.Selects(nil) || !b.Selects(map[string]string{"pool": "web"}) {
		t.Errorf("the budget does not select every machine, %v", err)
	}
	if want := (types.NamespacedName{Namespace: "fleet", Name: "b"}); b.NamespacedName != want {
		t.Errorf("the budget's name is %v, want %v", b.NamespacedName, want)
	}
}
