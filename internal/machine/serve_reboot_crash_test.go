package machine

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// TestCrashDuringAReboot interrupts each write and each call to the cloud of a reboot once. The instance must be
// rebooted exactly once for the value of the annotation.
//
// Rules: reboot-once, reboot-recorded-first, crash-safe-everywhere.
func TestCrashDuringAReboot(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"drained": false, "silent": true} {
		for _, mode := range []effectCut{{losesAnswer: true, dies: true}, {losesAnswer: true}, {}} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				interrupted := 0
				for at := 1; ; at++ {
					w := bootable(t)
					if silent {
						w.silence()
					}
					node := w.getNode(nodeNameOf(w.namespace, "m"))
					w.effects.next = effectCut{effectNumber: w.effects.seen + at, losesAnswer: mode.losesAnswer, dies: mode.dies}
					w.requestReboot("one")
					w.untilReboot(v1beta1.RebootSucceeded)
					m := w.untilReady()
					w.runUntil("m", "the uncordoned node", func() bool {
						return !w.getNode(node.Name).Spec.Unschedulable
					})
					if w.effects.struck == "" {
						break
					}
					interrupted++
					if in := w.cloud.LiveInstances()[0]; in.Boots != 1 || w.cloud.CreatedCount(m.UID) != 1 {
						t.Errorf("interrupted at effect %d (%s): %d boots", at, w.effects.struck, in.Boots)
					}
					m = w.get("m")
					if after := w.getNode(node.Name); after.UID != node.UID || w.outOfService() || m.Status.Power != nil ||
						m.Status.Reboot.OutOfService || !machinestate.IsReady(m) ||
						!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRebooted) {
						t.Errorf("interrupted at effect %d (%s): node %+v, status %+v", at, w.effects.struck, after.Spec, m.Status)
					}
					w.wantRest("m")
					if t.Failed() {
						t.FailNow()
					}
				}
				if interrupted < 5 {
					t.Errorf("only %d effects were interrupted", interrupted)
				}
				t.Logf("interrupted at %d effects", interrupted)
			})
		}
	}
}
