//go:build e2e

package e2e

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
)

// A machine that a user preserves is replaced at once, kept for a while, and then deleted completely.
//
// Rules: preserve-on-request, preservation-ends-on-time.
func TestPreservedMachineIsDeletedOnTime(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: []string{"--preserve-timeout=20s"}})
	m.removeDelays()
	m.createFleet(1, nil)
	chosen := m.awaitRunning(1)[0]
	m.change(chosen.Name, func(a *v1beta1.Machine) {
		a.Annotations = map[string]string{v1beta1.AnnotationPreserve: v1beta1.PreserveNow}
	})
	m.await("the preserved machine and its replacement", func(machines []v1beta1.Machine) bool {
		preserved, replaced := false, false
		for i := range machines {
			other := &machines[i]
			switch {
			case other.Status.Phase != v1beta1.MachineRunning || !other.DeletionTimestamp.IsZero():
			case other.UID == chosen.UID:
				preserved = other.Annotations[v1beta1.AnnotationPreservedUntil] != ""
			default:
				replaced = true
			}
		}
		return preserved && replaced
	})
	if now := m.awaitRunning(1)[0]; now.UID == chosen.UID {
		t.Error("the replacement was deleted instead of the preserved machine")
	}
	m.scale(0)
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
