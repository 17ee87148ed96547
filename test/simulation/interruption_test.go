package simulation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Two minutes are enough to evict the pods one after another, as their budget requires. The replacement is created at
// once, not at the end of the instance.
func TestInterruptedNodeDrainsBeforeItsInstanceEnds(t *testing.T) {
	t.Parallel()
	var scenario Scenario
	for _, s := range interruptionScenarios() {
		if s.Name == "interrupted" {
			scenario = s
		}
	}
	p, err := scenario.Prepare(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		w, err := p.base.Clone(seed)
		if err != nil {
			t.Fatal(err)
		}
		w.script = []Action{stopUsers(), interrupt(int(seed))}
		machines := func() int { return len(w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))) }
		var victim *instance
		var announced, replaced, emptied time.Time
		for {
			any, err := w.step(false)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if !any {
				at, _ := w.next()
				w.pass(max(at.Sub(w.clock.at), time.Millisecond))
			}
			for _, in := range w.cloud.instances {
				if victim == nil && !in.announced.IsZero() {
					victim, announced = in, w.clock.at
				}
			}
			if victim == nil {
				continue
			}
			if replaced.IsZero() && machines() > 3 {
				replaced = w.clock.at
			}
			if left := w.podsWhere(func(p *corev1.Pod) bool {
				return p.Spec.NodeName == victim.NodeName && !isPermanent(p)
			}); emptied.IsZero() && len(left) == 0 {
				emptied = w.clock.at
			}
			if w.cloud.byID(victim.ProviderID) == nil {
				break
			}
		}
		if took := replaced.Sub(announced); replaced.IsZero() || took > 5*time.Second {
			t.Errorf("seed %d: the replacement was created after %s, want at most 5s", seed, took)
		}
		if left := announced.Add(noticeLead).Sub(emptied); emptied.IsZero() || left < time.Second {
			t.Errorf("seed %d: the pods were gone %s before the end of the instance, want at least 1s", seed, left)
		}
	}
}
