package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// TestCrashWhileCapacityIsMissingLeadsToOneInstance interrupts each write and call from the creation of a Machine of
// a placement until it runs. The Machine must never have two instances, also not in different accounts, and must
// release everything that belongs to its attempts.
//
// Rules: awaiting-capacity-sends-nothing, attempt-ends-before-class-changes, crash-safe-everywhere,
// late-lack-of-capacity.
func TestCrashWhileCapacityIsMissingLeadsToOneInstance(t *testing.T) {
	t.Parallel()
	awaits := func(w *world) {
		w.runUntil("m", "the wait for capacity", func() bool { return w.get("m").IsAwaitingCapacity() })
	}
	lives := []struct {
		name string
		// creations is the highest permitted number of instances, one after the other.
		creations int
		live      func(w *world, noCapacity full)
	}{
		{"another class", 1, func(w *world, noCapacity full) {
			noCapacity["small"] = true
			awaits(w)
			w.changeClass("m", "large")
		}},
		{"capacity returns", 1, func(w *world, noCapacity full) {
			noCapacity["small"] = true
			awaits(w)
			noCapacity["small"] = false
		}},
		{"refused after a lost answer", 1, func(w *world, noCapacity full) {
			w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"),
				EffectDelay: 20 * time.Second})
			noCapacity["small"] = true
			w.runUntil("m", "the instance or the wait for capacity", func() bool {
				return w.get("m").Spec.ProviderID != "" || w.get("m").IsAwaitingCapacity()
			})
			if w.get("m").IsAwaitingCapacity() {
				w.changeClass("m", "large")
			}
		}},
		{"fails late", 2, func(w *world, _ full) {
			w.cloud.Boot, w.cloud.Shutdown = time.Hour, time.Second
			w.runUntil("m", "the instance", func() bool { return w.get("m").Status.Instance != nil })
			w.failInstances(provider.ResourceExhausted)
			awaits(w)
			w.cloud.Boot = 0
			w.changeClass("m", "large")
		}},
	}
	for _, life := range lives {
		for _, mode := range []effectCut{{losesAnswer: true, dies: true}, {losesAnswer: true}, {}} {
			t.Run(life.name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					w, noCapacity := placing(t)
					uid := w.createMachine("m", inDomain).UID
					w.effects.seen, w.effects.next = 0, effectCut{effectNumber: at, losesAnswer: mode.losesAnswer, dies: mode.dies}
					life.live(w, noCapacity)
					w.untilPhase("m", v1beta1.MachineRunning)
					if w.effects.struck == "" {
						t.Logf("interrupted up to effect %d", at-1)
						return
					}
					m := w.get("m")
					if n := w.cloud.CreatedCount(uid); n > life.creations {
						t.Errorf("%d instances were created", n)
					}
					want(t, "machines with two instances", names(w.cloud.DuplicatedMachines()))
					if in := w.cloud.LiveInstances(); len(in) != 1 || in[0].ProviderID != m.Spec.ProviderID {
						t.Errorf("the instances are %+v, the machine has %s", in, m.Spec.ProviderID)
					}
					if tokens := w.tokens(); len(tokens) > 0 {
						t.Errorf("there are %d bootstrap tokens", len(tokens))
					}
					if t.Failed() {
						t.Fatalf("interrupted at effect %d: %s; all: %q", at, w.effects.struck, w.effects.since())
					}
				}
			})
		}
	}
}
