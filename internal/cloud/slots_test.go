package cloud

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hall is places with the queue of a controller.
type hall struct {
	*Slots
	t     *testing.T
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newHall(t *testing.T, limit int) *hall {
	t.Helper()
	h := &hall{NewSlots(limit), t,
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	t.Cleanup(h.queue.ShutDown)
	if err := h.Source().Start(t.Context(), h.queue); err != nil {
		t.Fatal(err)
	}
	return h
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// triggered returns those that the queue brings.
func (h *hall) enqueued() (names []string) {
	for h.queue.Len() > 0 {
		request, _ := h.queue.Get()
		h.queue.Done(request)
		names = append(names, request.Name)
	}
	return names
}

func (h *hall) wantAcquired(name string, want bool) {
	h.t.Helper()
	if got := h.Acquire(named(name)); got != want {
		h.t.Errorf("Take(%s) = %v", name, got)
	}
}

func (h *hall) wantEnqueued(want ...string) {
	h.t.Helper()
	if got := h.enqueued(); !slices.Equal(got, want) {
		h.t.Errorf("triggered: %v, want %v", got, want)
	}
}

// Rule: creations-in-flight-limited.
func TestSlotsAreFirstComeFirstServed(t *testing.T) {
	h := newHall(t, 2)
	h.wantAcquired("a", true)
	h.wantAcquired("b", true)
	h.wantAcquired("a", true) // It has one.
	for _, late := range []string{"c", "d", "e"} {
		h.wantAcquired(late, false)
	}
	h.wantEnqueued()
	h.Release(named("a"))
	h.wantEnqueued("c")
	h.wantAcquired("d", false) // The place is free, and not for it.
	h.wantAcquired("f", false)
	h.wantAcquired("c", true)
	h.Release(named("d")) // Gone while it waited.
	h.wantEnqueued()
	h.Release(named("b"))
	h.wantEnqueued("e")
	h.Release(named("e")) // It came, and has no use for the place any more.
	h.wantEnqueued("f")
	h.wantAcquired("f", true)
	h.Release(named("nobody"))
	h.wantEnqueued()
}

// A process that starts finds creations under way that it did not begin. No other begins until they are few enough.
//
// Rule: creations-in-flight-limited.
func TestCreationsOfAnotherProcessTakeSlotsToo(t *testing.T) {
	h := newHall(t, 1)
	h.wantAcquired("a", true)
	h.wantAcquired("b", false)
	h.Occupy(named("b"))
	h.Occupy(named("c"))
	h.wantAcquired("d", false)
	for _, done := range []string{"a", "c"} {
		h.Release(named(done))
		h.wantEnqueued()
	}
	h.Release(named("b"))
	h.wantEnqueued("d")
}

// Whatever machines do, no more than the limit have places, nobody is forgotten who waits, and all get their turn.
//
// Rule: creations-in-flight-limited.
func TestEveryMachineGetsAPlaceInTheEnd(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + random.IntN(4)
		h := newHall(t, limit)
		var holding, awake []string
		for i := range 30 {
			awake = append(awake, fmt.Sprint(i))
		}
		done := 0
		for step := 0; done < 30 && step < 10_000; step++ {
			switch {
			case len(awake) > 0 && random.IntN(3) > 0:
				name := awake[0]
				awake = awake[1:]
				switch {
				case random.IntN(10) == 0: // It fails before it asks, and comes again.
					h.Release(named(name))
					awake = append(awake, name)
				case h.Acquire(named(name)):
					holding = append(holding, name)
				}
			case len(holding) > 0:
				i := random.IntN(len(holding))
				h.Release(named(holding[i]))
				holding = slices.Delete(holding, i, i+1)
				done++
			}
			for _, name := range h.enqueued() {
				if !slices.Contains(awake, name) && !slices.Contains(holding, name) {
					awake = append(awake, name)
				}
			}
			if len(holding) > limit {
				t.Fatalf("seed %d: %d have places, the limit is %d", seed, len(holding), limit)
			}
		}
		if done != 30 {
			t.Fatalf("seed %d: %d of 30 had a place, %d wait", seed, done, len(h.waiting))
		}
	}
}
