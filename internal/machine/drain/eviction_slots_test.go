package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/queueing"
)

func TestEvictionsWaitForASlot(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	slots := queueing.NewSlots(1)
	b.restart(Options{Evictions: slots})
	b.drain("m1")
	b.drain("m2")
	b.work.take()
	b.onEvict = func(pod string) {
		b.onEvict = nil
		if next := b.runPass("m2"); next != maxRecheck {
			t.Errorf("a drain that waits for a slot is requeued after %s, want %s", next, maxRecheck)
		}
		if got := b.work.take(); got != nil {
			t.Errorf("work for %v while there is no free slot", got)
		}
	}
	b.runPass("m1")
	b.expectEvictions("web-1")
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Errorf("work for %s, want [m2]", got)
	}
	b.runPass("m2")
	b.expectEvictions("web-2")
}

func TestForgottenMachineReleasesItsSlot(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	b.restart(Options{Evictions: queueing.NewSlots(1)})
	b.drain("m1")
	b.drain("m2")
	b.Controller.evictions.Acquire(key("x"))
	b.runPass("m1")
	b.runPass("m2")
	b.expectEvictions()
	b.Forget(key("m1"))
	b.work.take()
	b.Controller.evictions.Release(key("x"))
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Errorf("work for %s, want [m2]", got)
	}
	b.runPass("m1")
	b.runPass("m2")
	b.expectEvictions("web-2")
}

func TestSlotThatIsNoLongerNeededIsReleased(t *testing.T) {
	leaving := on("m1", aPod("a/web-1"))
	leaving.Finalizers = []string{"test/hold"}
	b := newBench(t, aNode("m1"), aNode("m2"), leaving, on("m2", aPod("a/web-2")))
	slots := queueing.NewSlots(1)
	b.restart(Options{Evictions: slots})
	slots.Acquire(key("x"))
	for _, machine := range []string{"m1", "m2"} {
		b.drain(machine)
		b.runPass(machine)
	}
	if err := b.target.Delete(context.Background(), leaving, client.GracePeriodSeconds(30)); err != nil {
		t.Fatal(err)
	}
	b.work.take()
	slots.Release(key("x"))
	b.runPass("m1")
	if got := fmt.Sprint(b.work.take()); got != "[m1 m2]" {
		t.Errorf("work for %s, want [m1 m2]", got)
	}

	b.Forget(key("m2"))
	slots.Acquire(key("x"))
	slots.Acquire(key("m2")) // like a pass that is overtaken by Forget
	slots.Acquire(key("m3"))
	slots.Release(key("x"))
	b.runPass("m2")
	if got := fmt.Sprint(b.work.take()); got != "[m2 m3]" {
		t.Errorf("work for %s, want [m2 m3]", got)
	}
}

// Rule: drains-have-own-workers.
func TestSlowEvictionsReleaseTheWorker(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")), on("m1", aPod("a/web-3")))
	b.callTime = time.Second
	b.drain("m1")
	b.work.take()
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Errorf("work for %s, want [m1] at once", got)
	}
	b.runPass("m1")
	b.expectEvictions("web-3")
}
