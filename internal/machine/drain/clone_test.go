package drain

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// simulation runs a controller without a goroutine: what it is to check goes into an agenda of its own.
type simulation struct {
	*bench
	agenda  []types.NamespacedName
	history []string // calls, triggers and work in their order
}

// simulate makes a world in which budgets refuse, one drain is forced, DaemonSets are gone and volumes are attached.
func simulate(t *testing.T) *simulation {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 9, DesiredHealthy: 8},
	}
	agents := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	agents.Namespace, agents.Name, agents.UID = "a", "agents", "agents"
	objects := []client.Object{budget, agents}
	for _, machine := range simulated {
		objects = append(objects, aNode(machine), anAttachment("csi-"+machine, machine, "db-"+machine))
		for i := range 4 {
			objects = append(objects, on(machine, aPod(fmt.Sprintf("a/%s-web-%d", machine, i))))
		}
		objects = append(objects,
			on(machine, aPod("a/"+machine+"-old", ofDaemonSet("gone"))),
			on(machine, aPod("a/"+machine+"-agent", ofDaemonSet("agents"))))
	}
	s := &simulation{bench: newBench(t, objects...)}
	for _, machine := range simulated {
		s.refuse[machine+"-web-1"], s.refuse[machine+"-web-2"] = refusedBy("web", 0), refusedBy("web", 0)
	}
	s.callTime = time.Second
	s.Controller = New(s.options())
	for _, machine := range slices.Backward(simulated) {
		s.drain(machine)
	}
	return s
}

var simulated = []string{"m1", "m2", "m3", "m4", "m5"}

func (s *simulation) options() Options {
	note := func(verb string, what any) { s.history = append(s.history, fmt.Sprint(verb, " ", what)) }
	target := interceptor.NewClient(s.target, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			note("list", fmt.Sprintf("%T", list))
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			note("get", key)
			return c.Get(ctx, key, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			note("delete", o.GetName())
			return c.Delete(ctx, o, opts...)
		},
	})
	return Options{
		Target: target, Clock: s.clock,
		Evict: func(ctx context.Context, e *policyv1.Eviction) error {
			note("evict", e.Name)
			return s.evict(ctx, e)
		},
		OnWork:    func(m types.NamespacedName) { note("work", m); s.agenda = append(s.agenda, m) },
		OnTrigger: func(m types.NamespacedName) { note("trigger", m) },
	}
}

// run makes passes: those that are asked for, then one for each machine, a second apart.
func (s *simulation) run(rounds int) {
	s.Helper()
	pass := func(machine types.NamespacedName) {
		result, err := s.Reconcile(context.Background(), reconcile.Request{NamespacedName: machine})
		if err != nil {
			s.Fatal(err)
		}
		s.history = append(s.history, fmt.Sprintf("%s comes back after %s", machine.Name, result.RequeueAfter))
	}
	for round := range rounds {
		for n := 0; len(s.agenda) > 0 && n < 50; n++ {
			machine := s.agenda[0]
			s.agenda = s.agenda[1:]
			pass(machine)
		}
		for _, machine := range simulated {
			pass(key(machine))
			if o := s.drain(machine); o.Done {
				s.VolumesDetached(context.Background(), volumesRequest(machine, o.LastPodGone))
			}
		}
		if round%3 == 2 {
			s.budgetChanged(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3},
			})
			s.refuse = map[string]error{"m3-web-1": refusedBy("web", 0)}
		}
		s.pass(time.Second)
	}
}

// TestTheSameInputsMakeTheSameCallsInTheSameOrder protects what a replay of a failure relies on.
func TestTheSameInputsMakeTheSameCallsInTheSameOrder(t *testing.T) {
	first := simulate(t)
	first.run(8)
	if len(first.history) < 100 {
		t.Fatalf("only %d calls: %q", len(first.history), first.history)
	}
	for range 5 {
		again := simulate(t)
		again.run(8)
		if !slices.Equal(first.history, again.history) {
			t.Fatalf("differs from another run: %s", difference(first.history, again.history))
		}
	}
}

// TestACloneContinuesAsItsOriginWould protects that no memory is left behind: a clone does the same as the controller
// that it comes from, in a world that is the same.
func TestACloneContinuesAsItsOriginWould(t *testing.T) {
	for rounds := range 7 {
		whole, cloned := simulate(t), simulate(t)
		whole.run(rounds)
		cloned.run(rounds)
		cloned.Controller = cloned.Clone(cloned.options())
		whole.run(3)
		cloned.run(3)
		if !slices.Equal(whole.history, cloned.history) {
			t.Fatalf("after %d rounds: differs from its origin: %s", rounds, difference(whole.history, cloned.history))
		}
	}
}

// TestACloneSharesNothing protects origin and clone from each other.
func TestACloneSharesNothing(t *testing.T) {
	for _, rounds := range []int{2, 8} { // amid the evictions, and amid the wait for volumes
		s := simulate(t)
		s.run(rounds)
		origin := s.Controller
		before := known(origin)
		clone := origin.Clone(s.options())
		if got := known(clone); got != before {
			t.Fatalf("the clone knows\n%s, its origin\n%s", got, before)
		}
		for _, r := range clone.drainStates.machines {
			for i := range r.drainOutcome.Blocked {
				r.drainOutcome.Blocked[i].Why = "changed"
				r.drainOutcome.Blocked[i].Budgets[0] = "changed"
			}
			for i := range r.volumesOutcome.Attached {
				r.volumesOutcome.Attached[i] = "changed"
			}
			for _, try := range r.drainPass.tries {
				try.Budgets[0] = "changed"
			}
		}
		s.Controller = clone
		s.run(6)
		for _, machine := range simulated[:2] {
			clone.Forget(key(machine))
		}
		if got := known(origin); got != before {
			t.Errorf("the origin knows\n%s after what its clone did, before\n%s", got, before)
		}
	}
}

// known is all that a controller knows, in words.
func known(c *Controller) string {
	text := fmt.Sprintln(c.rejections.byBudget, c.rejections.byMachine, c.attachments.byNode, c.daemonSets.found,
		len(c.drainStates.machines))
	for _, machine := range simulated {
		if r := c.drainStates.machines[key(machine)]; r != nil {
			text += fmt.Sprintln(machine, *r.drain, r.drainOutcome, r.drainPass, r.volumes, r.volumesOutcome, r.volumesPass,
				r.triggered)
		}
	}
	return text
}

// TestACloneWaitsForSlotsOfItsOwn protects that who waited for a place hears of it from the clone's limiter.
func TestACloneWaitsForSlotsOfItsOwn(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.restart(Options{Evictions: NewLimiter(1)})
	b.Controller.options.Evictions.acquire(key("x"), 0, nil)
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions()
	b.work.take()

	var heard []string
	clone := b.Clone(Options{
		Target: b.target, Clock: b.clock, Evict: b.evict,
		OnWork: func(m types.NamespacedName) { heard = append(heard, m.Name) },
	})
	clone.options.Evictions.release()
	if fmt.Sprint(heard) != "[m1]" || b.work.take() != nil {
		t.Errorf("the clone's caller heard of %v", heard)
	}
	if b.Controller.options.Evictions.acquire(key("m1"), 0, nil) {
		t.Error("the clone's place was the origin's")
	}

	shared := NewLimiter(3)
	if f := b.Clone(Options{Target: b.target, Evictions: shared}); f.options.Evictions != shared {
		t.Error("the limiter of the options is not used")
	}
}

// TestACloneInheritsPendingTriggers protects what is rung before a controller starts.
func TestACloneInheritsPendingTriggers(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	origin := New(Options{Target: b.target, Clock: b.clock})
	if o := origin.Drain(context.Background(), request("m1")); o.Reason != v1beta1.ReasonDraining {
		t.Fatalf("got %+v", o)
	}
	clone := origin.Clone(Options{Target: b.target, Clock: b.clock})
	for name, c := range map[string]*Controller{"the origin": origin, "the clone": clone} {
		if got := fmt.Sprint(startSource(t, c.Wiring().Sources[0]).take()); got != "[m1]" {
			t.Errorf("%s has work for %s, want [m1]", name, got)
		}
	}
}

// difference shows where two histories part.
func difference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%d: %q and %q, after %q", i, a[i], b[i], a[max(0, i-5):i])
		}
	}
	return fmt.Sprintf("%d and %d calls", len(a), len(b))
}
