package machine

import (
	"fmt"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// Delete returns Gone while the cloud does not show the instance.
//
// Rules: finalizer-after-instance, gone-is-confirmed.
func TestDeletionRightAfterCreationLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{time.Second, 20 * time.Second, 59 * time.Second} {
		for name, c := range map[string]struct {
			kind  func(*world)
			again func(*world)
		}{
			"removed within the call":                  {func(w *world) { w.cloud.Evasive = true }, func(*world) {}},
			"removed within the call, another process": {func(w *world) { w.cloud.Evasive = true }, (*world).restart},
			"removed slowly": {func(w *world) { w.cloud.Shutdown = 10 * time.Second },
				func(*world) {}},
			"removed slowly, another process": {func(w *world) { w.cloud.Shutdown = 10 * time.Second },
				(*world).restart},
			"only the provider ID was written": {func(w *world) { w.effects.next = effectCut{effectNumber: 3, dies: true} },
				(*world).restart},
			"without a target cluster, within the call": {func(w *world) { w.options.Target, w.cloud.Evasive = nil, true },
				(*world).restart},
			"found once it is shown": {func(*world) {}, func(*world) {}},
			"booting, and removed slowly": {func(w *world) {
				w.cloud.Boot, w.cloud.Shutdown = time.Minute, time.Minute
			}, func(*world) {}},
		} {
			t.Run(fmt.Sprintf("%s late, %s", lag, name), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, lagging(lag))
				c.kind(w)
				if w.options.Target == nil {
					w.restart()
				}
				w.class("small", "")
				w.createMachine("m")
				_, _ = w.pass("m")
				if len(w.cloud.LiveInstances()) != 1 {
					t.Fatal("there is no instance")
				}
				began := w.clock.Now()
				w.delete("m")
				c.again(w)
				w.untilGone("m")
				w.wantNothingLeft("m")
				within(t, "the time until the machine was gone", w.clock.Since(began), 0, w.cloud.Settle+lag+w.cloud.Shutdown+40*time.Second)
				if n := len(w.effects.since("cloud delete")); n > 40 {
					t.Errorf("%d calls of Delete", n)
				}
			})
		}
	}
}

// If the cloud accepts the deletion, the controller does not check whether the instance existed. If the first Delete
// returns Gone, the controller checks this without a delay.
//
// Rules: deletion-order, gone-is-confirmed.
func TestTheDeletionOfAnOldMachineDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  func(*world)
		calls []string
	}{
		"removed within the call": {func(*world) {}, []string{"cloud delete"}},
		"removed within the call, not reported": {func(w *world) { w.cloud.Evasive = true },
			[]string{"cloud delete", "cloud get"}},
		"gone before": {func(w *world) { w.cloud.Vanish(w.get("m").Spec.ProviderID) },
			[]string{"cloud delete", "cloud get"}},
		"gone before, new process": {func(w *world) {
			w.cloud.Vanish(w.get("m").Spec.ProviderID)
			w.restart()
		}, []string{"cloud delete", "cloud get"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.longRunning("m")
			c.kind(w)
			w.delete("m")
			w.reconcile("m")
			want(t, "calls", w.effects.calls(), c.calls...)
			want(t, "writes", w.effects.writes(), "API Node patch", "API Node delete", "API Machine patch")
			w.wantNothingLeft("m")
		})
	}
	t.Run("accepted by another process", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.Shutdown = 10 * time.Second
		w.class("small", "")
		w.running("m") // The machine is new, so only the accepted deletion proves that the instance is gone.
		w.delete("m")
		w.reconcile("m")
		w.step(10 * time.Second)
		w.restart()
		w.effects.clear()
		w.reconcile("m")
		want(t, "calls", w.effects.calls(), "cloud delete")
		w.wantNothingLeft("m")
	})
}

// Rule: gone-is-confirmed.
func TestDeletionWaitsWhileTheCloudStillShowsTheInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Evasive = true
	w.class("small", "")
	w.longRunning("m")
	w.cloud.ReadLag = 20 * time.Second
	w.delete("m")
	began := w.clock.Now()
	w.untilGone("m")
	within(t, "the time until the machine was gone", w.clock.Since(began), 20*time.Second, 30*time.Second)
	if n := len(w.effects.calls()); n > 30 {
		t.Errorf("%d calls", n)
	}
	w.wantNothingLeft("m")
}

// The cloud still shows the old instance while the new one is created. The machine has only one instance at a time.
//
// Rules: replacement-deletes-first, old-instance-not-taken-for-new.
func TestAReplacementInALaggingCloud(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*world){
		"removed within the call": func(w *world) { w.cloud.Evasive = true },
		"removed slowly":          func(w *world) { w.cloud.Shutdown = 3 * time.Second },
		"with a restart before each pass": func(w *world) {
			w.cloud.Shutdown = 3 * time.Second
			w.cloud.Script("Delete", fakecloud.Step{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joining)
			kind(w)
			w.class("small", joinsWithToken)
			w.class("large", joinsWithToken)
			w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
				return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
			}
			old := w.longRunning("m")
			w.cloud.ReadLag = 20 * time.Second
			w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
			w.runUntil("m", "the new instance", func() bool {
				if name == "with a restart before each pass" {
					w.restart()
				}
				m := w.get("m")
				return m.Status.Phase == v1beta1.MachineRunning && m.Status.Applied != nil && m.Status.Applied.ClassName == "large"
			})
			m := w.get("m")
			if live := w.cloud.LiveInstances(); len(live) != 1 || live[0].ProviderID != m.Spec.ProviderID ||
				m.Spec.ProviderID == old.Spec.ProviderID {
				t.Errorf("the machine has instance %s, had %s; live: %+v", m.Spec.ProviderID, old.Spec.ProviderID, live)
			}
			if made := w.cloud.CreatedCount(m.UID); made != 2 || len(w.cloud.DuplicatedMachines()) > 0 {
				t.Errorf("%d instances were created; twins: %v", made, w.cloud.DuplicatedMachines())
			}
			w.neverFailed()
			w.delete("m")
			w.untilGone("m")
			w.wantNothingLeft("m")
		})
	}
}

// The new instance is deleted too, even while the cloud still shows the old instance with the same tags.
//
// Rules: unrecorded-instance-looked-up-twice, old-instance-not-taken-for-new.
func TestADeletionDuringAReplacementInALaggingCloud(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.class("large", "")
	w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
	}
	old := w.longRunning("m")
	w.cloud.ReadLag = 20 * time.Second
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: 5 * time.Second})
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.reconcile("m")
	if in, err := w.cloud.Find("", "cluster", provider.Machine{UID: old.UID}); err != nil || in.ProviderID != old.Spec.ProviderID ||
		w.get("m").LaunchAttempt() != 2 {
		t.Fatalf("the cloud shows %v, %v of attempt %d", in, err, w.get("m").LaunchAttempt())
	}
	w.delete("m")
	w.untilGone("m")
	w.step(time.Hour)
	w.wantNothingLeft("m")
}
