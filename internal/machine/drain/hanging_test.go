package drain

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Rule hanging-evictions-limited: each of many machines has a pod whose eviction hangs because of a webhook. The time
// limit of the first calls is short. Later calls may take longer, but at most a quarter of the workers wait for such
// calls.
func TestHangingEvictionsLeaveWorkersToOtherDrains(t *testing.T) {
	t.Parallel()
	const workers, limit = 8, 2
	objects, machines := []client.Object{aNode("other"), on("other", aPod("a/quick"))}, []string{}
	for i := range workers {
		name := fmt.Sprint("m", i)
		machines = append(machines, name)
		objects = append(objects, aNode(name), on(name, aPod("a/"+name)))
	}
	target := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		Build()
	var evicted []string
	now, hanging, end := clocktesting.NewFakePassiveClock(noon), make(chan string, workers), make(chan struct{})
	c := New(Options{
		Target: target, Clock: now, Workers: workers,
		Evict: func(ctx context.Context, e *policyv1.Eviction) error {
			if e.Name == "quick" {
				evicted = append(evicted, e.Name)
				return nil
			}
			if deadline, _ := ctx.Deadline(); time.Until(deadline) > quickTimeout {
				hanging <- e.Name
				<-end
			}
			return context.DeadlineExceeded
		},
	})
	pass := func(machine string) {
		if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(machine)}); err != nil {
			t.Error(err)
		}
	}
	for _, machine := range machines {
		c.Drain(request(machine))
		pass(machine)
	}
	if n := len(hanging); n != 0 {
		t.Fatalf("%d of the first calls may take longer than %s", n, quickTimeout)
	}

	now.SetTime(noon.Add(firstBackoff))
	var running sync.WaitGroup
	done := make(chan string, workers)
	for _, machine := range machines {
		running.Go(func() {
			pass(machine)
			done <- machine
		})
	}
	for range workers - limit {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("more than %d workers are blocked", limit)
		}
	}
	c.Drain(request("other"))
	pass("other")
	if len(evicted) != 1 {
		t.Error("the pod of another machine is not evicted while evictions hang")
	}
	close(end)
	running.Wait()
	if n := len(hanging); n != limit {
		t.Errorf("%d calls took long, want %d", n, limit)
	}
}

// Rule: hanging-evictions-limited.
func TestCallThatMayTakeLongIsSentLast(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/hangs")), on("m1", aPod("a/quick")))
	b.evictionErrors["hangs"] = context.DeadlineExceeded
	b.drain("m1")
	b.work.take()
	b.runPass("m1")
	b.expectEvictions("hangs")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Errorf("work for %s after a call without an answer, want [m1]", got)
	}
	b.pass(firstBackoff)
	b.runPass("m1")
	b.expectEvictions("quick", "hangs")
}

// Rule: hanging-evictions-limited.
func TestCallIsPostponedWhileTooManyOthersTakeLong(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/hangs")), on("m1", aPod("a/quick")))
	b.restart(Options{Workers: 1})
	b.evictionErrors["hangs"] = context.DeadlineExceeded
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("hangs")
	b.longCalls <- struct{}{}
	b.pass(firstBackoff)
	b.runPass("m1")
	b.expectEvictions("quick")
	<-b.longCalls
	if next := b.runPass("m1"); next != maxRecheck {
		t.Errorf("the next check is after %s, want %s", next, maxRecheck)
	}
	b.expectEvictions()
	b.pass(maxRecheck)
	b.runPass("m1")
	b.expectEvictions("hangs")
}

// A pod whose first deletion waits for other calls could block its node beyond the deadline.
//
// Rule: hanging-evictions-limited.
func TestFirstDeletionIsNotPostponed(t *testing.T) {
	t.Parallel()
	_, try := resultOf(ActionEvict, context.DeadlineExceeded, Attempt{}, noon)
	for i, want := range []bool{false, true} {
		pass := drainPass{attempts: map[types.UID]Attempt{"web": try}}
		if got := pass.mayTakeLong(Step{UID: "web", Action: ActionDelete}); got != want {
			t.Errorf("after %d deletions without an answer, the next one may take long: %t", i, got)
		}
		_, try = resultOf(ActionDelete, context.DeadlineExceeded, try, noon)
	}
}

// Rule hanging-evictions-limited: if an interruption notice leaves only 30 seconds, a single webhook must not use up
// all of them.
func TestTimeLimitOfACall(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{
		2 * time.Hour: maxTimeout, 2 * time.Minute: 30 * time.Second, 24 * time.Second: 6 * time.Second,
		time.Second: quickTimeout, -time.Hour: quickTimeout,
	} {
		if got := (Request{Deadline: noon.Add(left)}).longTimeout(noon); got != want {
			t.Errorf("%s before the deadline: %s, want %s", left, got, want)
		}
	}
	if got := (Request{}).longTimeout(noon); got != maxTimeout {
		t.Errorf("without a deadline: %s", got)
	}
}
