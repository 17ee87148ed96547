package drain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"machinist.dev/machinist/internal/platform/queueing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Rule hanging-evictions-isolated: many machines begin their drains at once, and each has a pod for whose eviction a
// webhook hangs.
func TestHangingEvictionsInOneNamespaceDoNotBlockOtherDrains(t *testing.T) {
	t.Parallel()
	objects := []client.Object{aNode("other"), on("other", aPod("quick/web"))}
	machines := []string{}
	for i := range 30 {
		name := fmt.Sprint("m", i)
		machines = append(machines, name)
		objects = append(objects, aNode(name), on(name, aPod("hangs/"+name)))
	}
	machines = append(machines, "other")
	target := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		Build()
	const slots = 8
	hang, evicted, full := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var (
		workers  sync.WaitGroup
		mu       sync.Mutex
		inFlight int
	)
	now := clocktesting.NewFakePassiveClock(noon)
	c := New(Options{
		Target: target, Clock: now, Evictions: queueing.NewSlots(slots), Workers: 1,
		Evict: func(_ context.Context, e *policyv1.Eviction) error {
			if e.Namespace != "hangs" {
				close(evicted)
				return nil
			}
			mu.Lock()
			if inFlight++; inFlight == slots {
				close(full)
			}
			mu.Unlock()
			<-hang
			return errors.New("failed calling webhook")
		},
	})
	for _, machine := range machines {
		c.Drain(t.Context(), request(machine))
	}
	queue, done := make(chan string), make(chan struct{})
	for range c.options.Workers {
		workers.Go(func() {
			for machine := range queue {
				_, _ = c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(machine)})
			}
		})
	}
	go func() { // Requeue all machines repeatedly.
		defer close(queue)
		for i := 0; ; i++ {
			select {
			case queue <- machines[i%len(machines)]:
			case <-done:
				return
			}
		}
	}()
	<-full
	now.SetTime(noon.Add(slowCall))
	select {
	case <-evicted:
	case <-time.After(20 * time.Second):
		t.Error("a pod of another namespace is not evicted while evictions hang")
	}
	mu.Lock()
	if inFlight != slots {
		t.Errorf("%d evictions were sent in a namespace in which %d hang", inFlight, slots)
	}
	mu.Unlock()
	close(hang)
	close(done)
	workers.Wait()
}

// Rule: hanging-evictions-isolated.
func TestSlowNamespacesShareAQuarterOfTheSlots(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]int{1: 1, 2: 1, 4: 1, 8: 2, 20: 5} {
		c := newCalls(slots)
		begin := func(namespace string, now time.Time) int {
			n := 0
			for n < 100 {
				if _, allowed := c.begin(namespace, Evict, now); !allowed {
					break
				}
				n++
			}
			return n
		}
		if n := begin("quick", noon); n != 100 {
			t.Errorf("%d slots: only %d calls in a namespace that is not slow", slots, n)
		}
		c.inFlight = nil
		for _, namespace := range []string{"a", "b"} { // A hanging deletion makes a namespace slow, and uses no slot.
			first, _ := c.begin(namespace, Delete, noon)
			if n := c.hanging(noon.Add(slowCall)); n != 0 {
				t.Errorf("%d slots: %d evictions hang", slots, n)
			}
			c.end(first, noon.Add(slowCall))
		}
		later := noon.Add(slowCall)
		if n := begin("a", later) + begin("b", later); n != want {
			t.Errorf("%d slots: %d calls are in progress in slow namespaces, want %d", slots, n, want)
		}
		if n := begin("quick", later); n != 100 {
			t.Errorf("%d slots: a namespace waits for slow ones", slots)
		}
		if n := begin("a", later.Add(slowFor)); n != 0 {
			t.Errorf("%d slots: a namespace in which calls hang does not count as slow", slots)
		}
		if n := c.hanging(later.Add(slowCall - 1)); n != 0 {
			t.Errorf("%d slots: %d calls hang too early", slots, n)
		}
		if n := c.hanging(later.Add(slowCall)); n != want+100 {
			t.Errorf("%d slots: %d calls hang, want %d", slots, n, want+100)
		}
		c.inFlight = nil
		if !c.isSlow("a", later.Add(slowFor-1)) || c.isSlow("a", later.Add(slowFor)) {
			t.Errorf("%d slots: a namespace does not count as slow for %s", slots, slowFor)
		}
		quick, _ := c.begin("b", Evict, later)
		if c.end(quick, later.Add(slowCall-1)); c.isSlow("b", later.Add(slowCall)) {
			t.Errorf("%d slots: a namespace counts as slow after a quick call", slots)
		}
	}
}

// Rule: hanging-evictions-isolated.
func TestPodsOfSlowNamespacesAreEvictedLast(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("hangs/a")), on("m1", aPod("hangs/b")), on("m1", aPod("quick/c")))
	b.callTime = slowCall
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("a")
	b.callTime = 0
	b.runPass("m1")
	b.expectEvictions("c", "b")
}

// Rule: hanging-evictions-isolated.
func TestPassThatMaySendNothingIsRequeued(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("hangs/a")), on("m1", aPod("hangs/b")),
		on("m2", aPod("hangs/c")))
	b.restart(Options{Evictions: queueing.NewSlots(4)})
	b.callTime = slowCall
	b.drain("m1")
	b.drain("m2")
	b.runPass("m1")
	b.onEvict = func(string) {
		b.onEvict = nil
		if next := b.runPass("m2"); next != maxRecheck {
			t.Errorf("the pass is requeued after %s, want %s", next, maxRecheck)
		}
	}
	b.runPass("m1")
	b.expectEvictions("a", "b")
	b.runPass("m2")
	b.expectEvictions("c")
}

// Rule hanging-evictions-isolated: a single webhook must not use up a notice of half a minute.
func TestTimeLimitOfACall(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{
		2 * time.Hour: callTimeout, 2 * time.Minute: 30 * time.Second, 24 * time.Second: 6 * time.Second,
		time.Second: slowCall, -time.Hour: slowCall,
	} {
		if got := (Request{Deadline: noon.Add(left)}).patience(noon); got != want {
			t.Errorf("%s before the deadline: %s, want %s", left, got, want)
		}
	}
	if got := (Request{}).patience(noon); got != callTimeout {
		t.Errorf("without a deadline: %s", got)
	}
}
