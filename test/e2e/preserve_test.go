//go:build e2e

package e2e

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
)

// A machine that a person preserves is replaced at once, kept for a while, and then leaves nothing behind.
//
// Rules: preserve-on-request, preservation-ends-on-time.
func TestAPreservedMachineGoesWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: []string{"--preserve-timeout=20s"}})
	m.quick()
	m.fleet(1, nil)
	chosen := m.running(1)[0]
	m.change(chosen.Name, func(a *v1beta1.Machine) {
		a.Annotations = map[string]string{v1beta1.AnnotationPreserve: v1beta1.PreserveNow}
	})
	m.await("a replacement beside the machine that was preserved", func(machines []v1beta1.Machine) bool {
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
	if now := m.running(1)[0]; now.UID == chosen.UID {
		t.Error("the replacement went, and not the machine that was preserved")
	}
	m.scale(0)
	m.none()
	if n := m.live(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}
