package machineset

import (
	"math"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

func TestReplacementsLifecycle(t *testing.T) {
	refresh := func(r Replacements, machines ...*v1beta1.Machine) (Replacements, bool) {
		return r.Refresh(machines, 2, 60, epoch)
	}
	healthy := newMachine("a", up)

	r := Replacements{}.Begin("b")
	r, _ = refresh(r, healthy, newMachine("b", leaving))
	if !slices.Equal(r, Replacements{""}) {
		t.Fatalf("after the deletion: %q", r)
	}
	r = r.Assign([]string{"c", "unrelated"})
	if r, _ = refresh(r, healthy, newMachine("c")); !slices.Equal(r, Replacements{"c"}) ||
		r.InFlight([]*v1beta1.Machine{newMachine("c")}) != 1 {
		t.Fatalf("while the replacement comes up: %q", r)
	}
	left, recovered := refresh(r, healthy, newMachine("c", readyFor(10*time.Second)))
	if !slices.Equal(left, Replacements{"c"}) || !recovered {
		t.Errorf("the replacement runs and is not available yet: %q, recovered %v", left, recovered)
	}
	if left, recovered = refresh(r, healthy, newMachine("c", readyFor(time.Minute))); len(left) != 0 || !recovered {
		t.Errorf("the replacement is available: %q, recovered %v", left, recovered)
	}

	failing := newMachine("c", broken)
	left, recovered = refresh(r, healthy, failing)
	if recovered || left.InFlight([]*v1beta1.Machine{failing}) != 0 {
		t.Errorf("a failed replacement counts towards the budget: %q", left)
	}
	left = left.Begin("c")
	if left, _ = refresh(left, healthy); !slices.Equal(left, Replacements{""}) || left.InFlight(nil) != 1 {
		t.Errorf("after the replacement was itself replaced: %q", left)
	}

	if left, _ = refresh(Replacements{"c"}, healthy); !slices.Equal(left, Replacements{""}) {
		t.Errorf("after the replacement was deleted by hand: %q", left)
	}
	if left, _ = refresh(Replacements{"c", ""}, healthy, newMachine("d")); len(left) != 0 {
		t.Errorf("no machine is missing any more: %q", left)
	}
	if left, _ = refresh(Replacements{"", "", ""}, healthy); len(left) != 1 {
		t.Errorf("only one machine is missing: %q", left)
	}
}

// A new process may assume too many replacements, but never too few.
func TestResumeCountsMachinesComingUpAsReplacements(t *testing.T) {
	machines := []*v1beta1.Machine{
		newMachine("running", up), newMachine("young", readyFor(time.Second)), newMachine("pending"),
		newMachine("provisioned", launched),
		newMachine("unhealthy", unhealthy), newMachine("failed", broken), newMachine("refused", misconfigured),
		newMachine("leaving", leaving),
	}
	got := Resume(machines, 8, 60, epoch)
	if want := (Replacements{"young", "pending", "provisioned", ""}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Resume(nil, 8, 0, epoch); len(got) != 0 {
		t.Errorf("a set without machines has replacements: %q", got)
	}
	if got := Resume(several("m", 3, up), 1, 0, epoch); len(got) != 0 {
		t.Errorf("a set with too many machines has replacements: %q", got)
	}
}

// Rule: remediation-budget.
func TestRemediationBacksOff(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 11 {
		b.fail(epoch, minRemediationBackoff, maxRemediationBackoff)
		got = append(got, b.until.Sub(epoch))
	}
	want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800, 1800}
	for i := range want {
		if got[i] != want[i]*time.Second {
			t.Errorf("after failure %d: %s, want %s", i+1, got[i], want[i]*time.Second)
		}
	}
}

// Rules: remediation-budget, remediation-budget-of-owner.
func TestRemediationLimit(t *testing.T) {
	for value, want := range map[intstr.IntOrString]int{
		intstr.FromInt32(1): 1, intstr.FromInt32(0): 0, intstr.FromInt32(7): 7, intstr.FromInt32(-1): 1,
		intstr.FromString("0%"): 0, intstr.FromString("1%"): 1, intstr.FromString("20%"): 3, intstr.FromString("100%"): 11,
		intstr.FromString("many"): 1,
	} {
		if got := remediationLimit(v1beta1.MachineRemediation{MaxInFlight: &value}, 11); got != want {
			t.Errorf("maxInFlight %s of 11: %d, want %d", value.String(), got, want)
		}
	}
	if got := remediationLimit(v1beta1.MachineRemediation{MaxInFlight: ptr.To(intstr.FromString("50%"))}, 0); got != 1 {
		t.Errorf("50%% of 0 replicas: %d, want 1", got)
	}
	if got := remediationLimit(v1beta1.MachineRemediation{}, 1); got != 1 {
		t.Errorf("the default: %d, want 1", got)
	}
}

// Rule vanished-replaced-at-once: while the replacements of vanished machines vanish too, the set backs off
// exponentially. A Running replacement ends the backoff.
func TestVanishingReplacementsBackOff(t *testing.T) {
	set := aSet(2)
	p := &pass{Reconciler: New(Options{}), state: State{Set: set, Now: epoch}}
	p.known = p.shared.get(set)
	refresh := func(machines ...*v1beta1.Machine) {
		p.state.Machines = machines
		if err := p.countInFlight(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	replace := func(victim, by string) {
		p.recordRemediated([]*v1beta1.Machine{newMachine(victim, lost)})
		p.known.lostReplacements = p.known.lostReplacements.Assign([]string{by})
	}
	b := newMachine("b", up)
	refresh(newMachine("a", lost), b)
	replace("a", "a1")
	if refresh(newMachine("a1"), b); p.state.InFlight != 0 || !p.state.NextLost.IsZero() {
		t.Fatalf("after the first machine vanished: %d in flight, backoff until %s", p.state.InFlight, p.state.NextLost)
	}
	replace("a1", "a2")
	refresh(newMachine("a2"), b)
	if wait := p.state.NextLost.Sub(epoch); wait != minRemediationBackoff {
		t.Fatalf("after the second machine vanished: backoff of %s", wait)
	}
	replace("a2", "a3")
	refresh(newMachine("a3"), b)
	if wait := p.state.NextLost.Sub(epoch); wait != 2*minRemediationBackoff {
		t.Fatalf("after the third machine vanished: backoff of %s", wait)
	}
	if refresh(newMachine("a3", up), b); !p.state.NextLost.IsZero() || len(p.state.LostReplacements) != 0 {
		t.Errorf("the third replacement runs: backoff until %s for %q", p.state.NextLost, p.state.LostReplacements)
	}
	p.recordRemediated([]*v1beta1.Machine{newMachine("b", broken)})
	in, _ := p.shared.replacementsOf(set.UID)
	p.shared.keepReplacements(set.UID, in.Assign([]string{"b1"}))
	if refresh(newMachine("a3", up), newMachine("b1")); p.state.InFlight != 1 {
		t.Fatalf("%d in flight, want 1", p.state.InFlight)
	}
	replace("b1", "b2")
	if refresh(newMachine("a3", up), newMachine("b2")); p.state.InFlight != 0 ||
		!slices.Equal(p.state.LostReplacements, Replacements{"b2"}) {
		t.Errorf("%d in flight, want 0; %q replace vanished machines", p.state.InFlight, p.state.LostReplacements)
	}
}

func TestSurge(t *testing.T) {
	d := &v1beta1.MachineDeployment{Spec: v1beta1.MachineDeploymentSpec{Replicas: ptr.To[int32](10)}}
	if got := surgeOf(d); got != 1 {
		t.Errorf("the default: %d, want 1", got)
	}
	d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.FromString("25%"))}
	if got := surgeOf(d); got != 3 {
		t.Errorf("25%% of 10: %d, want 3", got)
	}
	d.Spec.Strategy.Type = v1beta1.StrategyOnDelete
	if got := surgeOf(d); got != 0 {
		t.Errorf("OnDelete: %d, want 0", got)
	}
}

// FuzzRemediationLimit (rule remediation-budget) checks that only the values 0 and 0% result in a limit of 0 machines.
func FuzzRemediationLimit(f *testing.F) {
	for _, seed := range []string{"0%", "0", "1%", "100%", "-1%", "many", "", "99999999999999999999%",
		"9223372036854775807%"} {
		f.Add(seed, int32(0), int32(100000))
	}
	f.Add("1%", int32(0), int32(0))
	f.Add("", int32(-1), int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, text string, number, replicas int32) {
		if replicas < 0 {
			return
		}
		limit := intstr.FromString(text)
		if text == "" {
			limit = intstr.FromInt32(number)
		}
		none := limit == intstr.FromInt32(0) || limit == intstr.FromString("0%")
		if n := remediationLimit(v1beta1.MachineRemediation{MaxInFlight: &limit}, replicas); n < 0 || n == 0 && !none ||
			none && n != 0 {
			t.Errorf("%s of %d is %d", limit.String(), replicas, n)
		}
	})
}
