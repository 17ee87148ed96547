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
)

// simulation runs a controller without goroutines. The agenda contains the machines to process next.
type simulation struct {
	*bench
	agenda  []types.NamespacedName
	history []string // calls, triggers and work in order
}

// In the simulation, budgets refuse evictions, DaemonSets do not exist, and volumes stay attached.
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
		s.evictionErrors[machine+"-web-1"] = refusedBy("web", 0)
		s.evictionErrors[machine+"-web-2"] = refusedBy("web", 0)
	}
	s.callTime = time.Second
	s.Controller = New(s.options())
	startSources(t, s.Wiring().Sources...).onAdd = func(r reconcile.Request) {
		s.note("work", r)
		s.agenda = append(s.agenda, r.NamespacedName)
	}
	startSources(t, s.Triggers()).onAdd = func(r reconcile.Request) { s.note("trigger", r) }
	for _, machine := range slices.Backward(simulated) {
		s.drain(machine)
	}
	return s
}

var simulated = []string{"m1", "m2", "m3", "m4", "m5"}

func (s *simulation) note(verb string, what any) {
	s.history = append(s.history, fmt.Sprint(verb, " ", what))
}

func (s *simulation) options() Options {
	note := s.note
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
	}
}

// run executes the given number of rounds, one second apart. Each round runs the passes on the agenda, and then one
// pass for each machine.
func (s *simulation) run(rounds int) {
	s.Helper()
	pass := func(machine types.NamespacedName) {
		result, err := s.Reconcile(context.Background(), reconcile.Request{NamespacedName: machine})
		if err != nil {
			s.Fatal(err)
		}
		s.history = append(s.history, fmt.Sprintf("%s is requeued after %s", machine.Name, result.RequeueAfter))
	}
	for round := range rounds {
		for n := 0; len(s.agenda) > 0 && n < 50; n++ {
			machine := s.agenda[0]
			s.agenda = s.agenda[1:]
			pass(machine)
		}
		for _, machine := range simulated {
			pass(key(machine))
			if o := s.drain(machine); o.IsDone {
				s.VolumesDetached(context.Background(), volumesRequest(machine, o.LastPodGone))
			}
		}
		if round%3 == 2 {
			s.budgetChanged(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3},
			})
			s.evictionErrors = map[string]error{"m3-web-1": refusedBy("web", 0)}
		}
		s.pass(time.Second)
	}
}

// A failed simulation can only be replayed if the controller is deterministic.
func TestSameInputsResultInTheSameCallsInTheSameOrder(t *testing.T) {
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

func difference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%d: %q and %q, after %q", i, a[i], b[i], a[max(0, i-5):i])
		}
	}
	return fmt.Sprintf("%d and %d calls", len(a), len(b))
}
