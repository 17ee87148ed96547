package migration

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: migration-status-put-back.
func TestAPhaseThatSomebodyWroteIsPutBack(t *testing.T) {
	l := newLife(t)
	l.adoptedFleet()
	before := l.pass()
	for _, phase := range []v1beta1.MigrationPhase{"", v1beta1.MigrationFencing, v1beta1.MigrationCompleted} {
		changed := l.pass().DeepCopy()
		changed.Status.Phase = phase
		l.must(l.admin.Status().Update(l.ctx, changed))
		if m := l.pass(); m.Status.Phase != before.Status.Phase {
			t.Errorf("after somebody wrote the phase %q it is %q, not %q", phase, m.Status.Phase, before.Status.Phase)
		}
	}
}
