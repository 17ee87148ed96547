package drain

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Rule hanging-evictions-isolated: many machines begin their drains at once, and each has a pod for whose eviction a
// webhook hangs. The machine that comes last is drained when the first calls reach their time limit.
func TestHangingEvictionsDoNotBlockOtherDrainsForLongerThanOneCall(t *testing.T) {
	t.Parallel()
	objects := []client.Object{aNode("other"), on("other", aPod("quick/web"))}
	machines := []string{}
	for i := range 30 {
		name := fmt.Sprint("m", i)
		machines = append(machines, name)
		// All of these pods, or each in a namespace of its own.
		objects = append(objects, aNode(name), on(name, aPod("hangs/"+name)))
	}
	machines = append(machines, "other")
	target := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		Build()
	const workers, limit = 8, 2
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		sent    int // calls for which the webhook hangs
	)
	now := clocktesting.NewFakePassiveClock(noon)
	full, timeLimit, end, evicted := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := New(Options{
		Target: target, Clock: now, Workers: workers,
		Evict: func(_ context.Context, e *policyv1.Eviction) error {
			if e.Namespace != "hangs" {
				close(evicted)
				return nil
			}
			mu.Lock()
			sent++
			first := sent <= workers
			if sent == workers {
				close(full)
			}
			mu.Unlock()
			if first {
				<-timeLimit
			} else {
				<-end
			}
			return context.DeadlineExceeded
		},
	})
	for _, machine := range machines {
		c.Drain(request(machine))
	}
	queue, done := make(chan string), make(chan struct{})
	for range c.options.Workers {
		running.Go(func() {
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
	now.SetTime(noon.Add(callTimeout))
	close(timeLimit)
	select {
	case <-evicted:
	case <-time.After(20 * time.Second):
		t.Error("a pod of another namespace is not evicted while evictions hang")
	}
	mu.Lock()
	if sent > workers+limit {
		t.Errorf("%d evictions were sent in the namespace in which %d hung, want at most %d more", sent, workers, limit)
	}
	mu.Unlock()
	close(end)
	close(done)
	running.Wait()
}

// Rule: hanging-evictions-isolated.
func TestSlowNamespacesShareAQuarterOfTheWorkers(t *testing.T) {
	t.Parallel()
	for workers, want := range map[int]int{2: 1, 4: 1, 8: 2, 32: 8} {
		s := newSlowNamespaces(workers)
		begin := func(namespace string) int {
			n := 0
			for n < 100 && s.begin(namespace) {
				n++
			}
			return n
		}
		expect := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%d workers: %d calls %s, want %d", workers, got, what, want)
			}
		}
		expect("begin in a namespace that is not slow", begin("quick"), 100)
		for _, namespace := range []string{"a", "b"} {
			s.begin(namespace)
			s.end(namespace, slowCall)
		}
		expect("begin in slow namespaces", begin("a")+begin("b"), want)
		expect("begin in another namespace", begin("quick"), 100)
		for range want - 1 {
			s.end("a", slowCall-1)
		}
		if !s.isSlow("a") {
			if want > 1 {
				t.Errorf("%d workers: the namespace is quick while another call hangs", workers)
			}
		}
		s.end("a", slowCall-1)
		if s.isSlow("a") || !s.isSlow("b") {
			t.Errorf("%d workers: after a quick call, a is slow %t, b is slow %t", workers, s.isSlow("a"), s.isSlow("b"))
		}
		expect("begin in the namespace that is no longer slow", begin("a"), 100)
	}
}

// A namespace that was full of hanging calls when it became slow gets no further calls until few are left.
//
// Rule: hanging-evictions-isolated.
func TestCallsThatBeganBeforeTheNamespaceWasSlowCount(t *testing.T) {
	t.Parallel()
	s := newSlowNamespaces(8)
	for range 5 {
		s.begin("a")
	}
	for left := 4; left >= 0; left-- {
		s.end("a", slowCall)
		if began := s.begin("a"); began != (left < 2) {
			t.Errorf("with %d calls in flight, another one begins: %t", left, began)
		} else if began {
			s.end("a", slowCall)
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
func TestPassThatMayNotSendIsRequeued(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("hangs/a")), on("m1", aPod("hangs/b")),
		on("m2", aPod("hangs/c")), on("m2", aPod("quick/d")))
	b.restart(Options{Workers: 4})
	b.callTime = slowCall
	b.drain("m1")
	b.drain("m2")
	b.runPass("m1")
	b.expectEvictions("a")
	b.onEvict = func(string) {
		b.onEvict, b.callTime = nil, 0
		if next := b.runPass("m2"); next != maxRecheck {
			t.Errorf("the pass is requeued after %s, want %s", next, maxRecheck)
		}
	}
	b.runPass("m1")
	b.expectEvictions("b", "d")
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
