//go:build e2e

package e2e

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/stack"
)

// A machine that a person sets aside is replaced at once, kept for a while, and then leaves nothing behind.
//
// M-60, M-62.
func TestAMachineSetAsideGoesWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: []string{"--preserve-timeout=20s"}})
	m.quick()
	m.fleet(1, nil)
	aside := m.running(1)[0]
	m.change(aside.Name, func(a *v1beta1.Machine) {
		a.Annotations = map[string]string{v1beta1.AnnotationPreserve: v1beta1.PreserveNow}
	})
	m.await("a replacement beside the machine that was set aside", func(machines []v1beta1.Machine) bool {
		kept, replaced := false, false
		for i := range machines {
			other := &machines[i]
			switch {
			case other.Status.Phase != v1beta1.MachineRunning || !other.DeletionTimestamp.IsZero():
			case other.UID == aside.UID:
				kept = other.Annotations[v1beta1.AnnotationPreservedUntil] != ""
			default:
				replaced = true
			}
		}
		return kept && replaced
	})
	if now := m.running(1)[0]; now.UID == aside.UID {
		t.Error("the replacement went, and not the machine that was set aside")
	}
	m.scale(0)
	m.none()
	if n := m.live(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
