package disruption

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type lists struct {
	client.Reader
	version  int
	machines []*v1beta1.Machine
	budgets  []*v1beta1.MachineDisruptionBudget
	asked    int // number of lists of machines
}

func (l *lists) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.SetResourceVersion(strconv.Itoa(l.version))
	switch into := into.(type) {
	case *v1beta1.MachineList:
		l.asked++
		for _, m := range l.machines {
			into.Items = append(into.Items, *m.DeepCopy())
		}
	case *v1beta1.MachineDisruptionBudgetList:
		for _, b := range l.budgets {
			into.Items = append(into.Items, *b)
		}
	}
	return nil
}

// bench contains a Ledger and the two readers that the test controls: the cache and the API server.
type bench struct {
	*Ledger
	cache, server *lists
	clock         *clocktesting.FakePassiveClock
}

func ledgerFor(limit int32, machines ...*v1beta1.Machine) *bench {
	all := &v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "all",
		UID: "all", ResourceVersion: "1"},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.FromInt32(limit)}}
	b := &bench{cache: &lists{version: 10, machines: machines, budgets: []*v1beta1.MachineDisruptionBudget{all}},
		server: &lists{version: 10, machines: machines, budgets: []*v1beta1.MachineDisruptionBudget{all}},
		clock:  clocktesting.NewFakePassiveClock(noon)}
	b.Ledger = New(Options{Client: b.cache, LiveReader: b.server, Clock: b.clock,
		CacheVersion: func() string { return strconv.Itoa(b.cache.version) }})
	return b
}

func asker(name string) Asker {
	return Asker{Kind: "MachineSet", NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name}}
}

func (b *bench) grant(t *testing.T, who string, cs ...Candidate) string {
	t.Helper()
	granted, err := b.Grant(t.Context(), asker(who), cs)
	if err != nil {
		t.Fatal(err)
	}
	return namesOf(granted)
}

// Rule: disruptions-are-counted-exactly. A granted machine counts as disrupted until its object shows the disruption.
// If the outcome of the write is unknown, the machine counts until the next live list shows what was written.
func TestGrantsCountUntilTheyAreWritten(t *testing.T) {
	ms := several(3, "m", "a")
	b := ledgerFor(1, ms...)
	ask := func(i int) Candidate { return Candidate{Machine: ms[i], Reason: v1beta1.DisruptionRollout} }
	if got := b.grant(t, "one", ask(0)); got != "m0" {
		t.Fatalf("granted %q", got)
	}
	if got := b.grant(t, "two", ask(1)); got != "" {
		t.Errorf("granted %q before the first grant was settled", got)
	}
	b.Settle(ms[0], errors.New("conflict"))
	if got := b.grant(t, "two", ask(1)); got != "m1" {
		t.Errorf("granted %q after a write that failed", got)
	}
	b.Settle(ms[1], context.DeadlineExceeded)
	lists := b.server.asked
	b.server.machines = slices.Clone(ms)
	b.server.machines[1], b.server.version = machine("m1", "a", leaving), 12
	if got := b.grant(t, "one", ask(0)); got != "" || b.server.asked != lists+1 {
		t.Errorf("granted %q after %d live lists, with a write of unknown outcome", got, b.server.asked-lists)
	}
	b.cache.machines, b.cache.version = b.server.machines, 12
	if got := b.grant(t, "one", ask(0)); got != "" || b.server.asked != lists+1 {
		t.Errorf("granted %q after %d live lists, when the cache has caught up", got, b.server.asked-lists)
	}
}

// Rule: disruptions-are-counted-exactly. If the disruption of a machine was granted but the write to the Machine was
// lost, the machine must not count as disrupted forever. Check must correct the count, because no controller calls
// Grant while the budget seems to be used up.
func TestLostWriteUsesNoRoom(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	if got := b.grant(t, "one", Candidate{Machine: ms[0], Reason: v1beta1.DisruptionRollout}); got != "m0" {
		t.Fatalf("granted %q", got)
	}
	b.Settle(ms[0], context.DeadlineExceeded)
	may, denied, err := b.Check(t.Context(), asker("two"), candidates(v1beta1.DisruptionRollout, ms[1]))
	if err != nil || namesOf(may) != "m1" || len(denied) > 0 {
		t.Errorf("may %q, denied %v (%v)", namesOf(may), denied, err)
	}
}

// Rule: disruptions-are-counted-exactly. A new process does not know what its predecessor began.
func TestFirstGrantCountsLiveList(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	b.server.machines, b.server.version = []*v1beta1.Machine{ms[0], machine("m1", "a", leaving)}, 11
	if got := b.grant(t, "one", Candidate{Machine: ms[0], Reason: v1beta1.DisruptionRollout}); got != "" {
		t.Errorf("granted %q from an outdated cache", got)
	}
	if b.server.asked != 1 {
		t.Errorf("%d live lists", b.server.asked)
	}
}

// Rule: no-budget-no-cost. The budgets are read live once, because the cache of a new process may not contain all
// budgets yet.
func TestWithoutBudgetsNoMachinesAreRead(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(1, ms...)
	b.cache.budgets, b.server.budgets = nil, nil
	if got := b.grant(t, "one", candidates(v1beta1.DisruptionRollout, ms...)...); got != "m0 m1" {
		t.Errorf("granted %q", got)
	}
	if n := b.server.asked + b.cache.asked; n > 0 {
		t.Errorf("%d lists of machines", n)
	}
	mayDeny, err := b.MayDeny(t.Context(), "fleet", ms)
	if mayDeny || err != nil {
		t.Errorf("machines may be denied without budgets (%v)", err)
	}
}

// The cache of a new process may start with an old list of budgets.
func TestNewProcessKnowsEachBudget(t *testing.T) {
	ms := several(2, "m", "a")
	b := ledgerFor(0, ms...)
	b.cache.budgets = nil
	if mayDeny, err := b.MayDeny(t.Context(), "fleet", ms); !mayDeny || err != nil {
		t.Errorf("no machine may be denied before the budgets were read (%v)", err)
	}
	if got := b.grant(t, "one", candidates(v1beta1.DisruptionRollout, ms...)...); got != "" {
		t.Errorf("granted %q with an old list of budgets", got)
	}
	b.cache.budgets = b.server.budgets
	if got := b.grant(t, "one", candidates(v1beta1.DisruptionRollout, ms...)...); got != "" {
		t.Errorf("granted %q", got)
	}
	b.cache.budgets = nil // The cache is trusted now.
	if got := b.grant(t, "one", candidates(v1beta1.DisruptionRollout, ms...)...); got != "m0 m1" {
		t.Errorf("granted %q after the budget was deleted", got)
	}
}

// Rule: urgent-disruption-first.
func TestWaitingAskerKeepsPrecedence(t *testing.T) {
	broken, old := machine("broken", "a", failed(v1beta1.FailureCreateError)), machine("old", "a")
	b := ledgerFor(1, broken, old, machine("leaving", "a", leaving))
	repair := Candidate{Machine: broken, Reason: v1beta1.DisruptionRemediation}
	rollout := Candidate{Machine: old, Reason: v1beta1.DisruptionRollout}
	_, denied, err := b.Check(t.Context(), asker("broken"), []Candidate{repair})
	if err != nil || len(denied) != 1 {
		t.Fatalf("%+v %v", denied, err)
	}
	b.RecordWaiting(asker("broken"), denied)
	b.cache.machines = b.cache.machines[:2]
	b.server.machines = b.cache.machines
	if got := b.grant(t, "old", rollout); got != "" {
		t.Errorf("granted %q before a more urgent candidate", got)
	}
	if blocked := b.CountBlocked(); blocked[v1beta1.DisruptionRemediation] != 1 ||
		len(blocked) != len(v1beta1.DisruptionReasons) {
		t.Errorf("blocked: %v", blocked)
	}
	if got := b.WaitingAskers("fleet"); !slices.Equal(got, []Asker{asker("broken")}) {
		t.Errorf("waiting: %v", got)
	}
	if got := b.Requests("MachineSet", "fleet"); len(got) != 1 || got[0].NamespacedName != asker("broken").NamespacedName {
		t.Errorf("requests: %v", got)
	}
	b.RecordWaiting(asker("broken"), nil, repair)
	if got := b.grant(t, "old", rollout); got != "" {
		t.Errorf("granted %q between the plan for a more urgent candidate and its write", got)
	}
	if got, blocked := b.WaitingAskers("fleet"), b.CountBlocked(); len(got) != 0 || blocked[v1beta1.DisruptionRemediation] != 0 {
		t.Errorf("waiting: %v, blocked: %v, although the candidate has room", got, blocked)
	}
	b.clock.SetTime(noon.Add(waitingTimeout + time.Second))
	if got := b.grant(t, "old", rollout); got != "old" {
		t.Errorf("granted %q although no other asker waits any more", got)
	}
}
