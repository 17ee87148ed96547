package queueing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type controllerSlots struct {
	*Slots
	t     *testing.T
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newSlots(t *testing.T, limit int) *controllerSlots {
	t.Helper()
	h := &controllerSlots{NewSlots(limit), t,
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	t.Cleanup(h.queue.ShutDown)
	if err := h.Source().Start(t.Context(), h.queue); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *controllerSlots) enqueued() (names []string) {
	for h.queue.Len() > 0 {
		request, _ := h.queue.Get()
		h.queue.Done(request)
		names = append(names, request.Name)
	}
	return names
}

func (h *controllerSlots) wantAcquired(name string, want bool) {
	h.t.Helper()
	if got := h.Acquire(key(name)); got != want {
		h.t.Errorf("Acquire(%s) = %v", name, got)
	}
}

func (h *controllerSlots) wantEnqueued(want ...string) {
	h.t.Helper()
	if got := h.enqueued(); !slices.Equal(got, want) {
		h.t.Errorf("enqueued: %v, want %v", got, want)
	}
}

// Rule: creations-in-flight-limited.
func TestSlotsAreFirstComeFirstServed(t *testing.T) {
	h := newSlots(t, 2)
	h.wantAcquired("a", true)
	h.wantAcquired("b", true)
	h.wantAcquired("a", true) // This object already has a slot.
	for _, late := range []string{"c", "d", "e"} {
		h.wantAcquired(late, false)
	}
	h.wantEnqueued()
	h.Release(key("a"))
	h.wantEnqueued("c")
	h.wantAcquired("d", false) // The free slot is reserved for c.
	h.wantAcquired("f", false)
	h.wantAcquired("c", true)
	h.Release(key("d")) // The object was deleted while it waited.
	h.wantEnqueued()
	h.Release(key("b"))
	h.wantEnqueued("e")
	h.Release(key("e")) // The object no longer needs the slot.
	h.wantEnqueued("f")
	h.wantAcquired("f", true)
	h.Release(key("unknown"))
	h.wantEnqueued()
}

// Operations of the previous process may still be running. The new process must count these operations towards its
// limit.
//
// Rule: creations-in-flight-limited.
func TestOperationsOfAnotherProcessOccupySlots(t *testing.T) {
	h := newSlots(t, 1)
	h.wantAcquired("a", true)
	h.wantAcquired("b", false)
	h.Occupy(key("b"))
	h.Occupy(key("c"))
	h.wantAcquired("d", false)
	for _, done := range []string{"a", "c"} {
		h.Release(key(done))
		h.wantEnqueued()
	}
	h.Release(key("b"))
	h.wantEnqueued("d")
}

// In every order of events, the limit must hold, and every waiting object must eventually get a slot.
//
// Rule: creations-in-flight-limited.
func TestEveryObjectGetsASlotEventually(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + random.IntN(4)
		h := newSlots(t, limit)
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
				case random.IntN(10) == 0: // The pass fails before it needs a slot. The controller repeats it.
					h.Release(key(name))
					awake = append(awake, name)
				case h.Acquire(key(name)):
					holding = append(holding, name)
				}
			case len(holding) > 0:
				i := random.IntN(len(holding))
				h.Release(key(holding[i]))
				holding = slices.Delete(holding, i, i+1)
				done++
			}
			for _, name := range h.enqueued() {
				if !slices.Contains(awake, name) && !slices.Contains(holding, name) {
					awake = append(awake, name)
				}
			}
			if len(holding) > limit {
				t.Fatalf("seed %d: %d objects have slots, the limit is %d", seed, len(holding), limit)
			}
		}
		if done != 30 {
			t.Fatalf("seed %d: only %d of 30 objects got a slot, %d wait", seed, done, len(h.waitingObjects))
		}
	}
}

func TestThereIsAtLeastOneSlot(t *testing.T) {
	for _, limit := range []int{-1, 0, 1} {
		h := newSlots(t, limit)
		h.wantAcquired("a", true)
		h.wantAcquired("b", false)
	}
}
