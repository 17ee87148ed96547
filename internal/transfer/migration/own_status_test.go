package migration

import (
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: migration-status-put-back.
func TestPhaseWrittenByAnotherClientIsRestored(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	before := l.pass()
	for _, phase := range []v1beta1.MigrationPhase{"", v1beta1.MigrationFencing, v1beta1.MigrationAborted} {
		changed := l.pass().DeepCopy()
		changed.Status.Phase = phase
		l.must(l.admin.Status().Update(l.ctx, changed))
		if m := l.pass(); m.Status.Phase != before.Status.Phase {
			t.Errorf("after another client wrote the phase %q, the phase is %q, expected %q", phase, m.Status.Phase,
				before.Status.Phase)
		}
	}
}

// A former leader may have reached a later phase, and a user may abort the migration.
func TestMayFollow(t *testing.T) {
	for _, test := range []struct {
		was, is v1beta1.MigrationPhase
		want    bool
	}{
		{v1beta1.MigrationCopying, v1beta1.MigrationCopying, true},
		{v1beta1.MigrationCopying, v1beta1.MigrationAdopting, true},
		{v1beta1.MigrationCommitting, v1beta1.MigrationCleaning, true},
		{v1beta1.MigrationCopying, v1beta1.MigrationSettling, false},
		{v1beta1.MigrationCopying, "", false},
		{v1beta1.MigrationCopying, v1beta1.MigrationAborting, true},
		{v1beta1.MigrationRemoving, v1beta1.MigrationAborting, false},
		{v1beta1.MigrationAborting, v1beta1.MigrationAborted, true},
		{v1beta1.MigrationAborting, v1beta1.MigrationFencing, false},
		{v1beta1.MigrationAborted, v1beta1.MigrationPlanning, false},
		{v1beta1.MigrationCompleted, v1beta1.MigrationCleaning, false},
	} {
		if got := mayFollow(test.is, test.was); got != test.want {
			t.Errorf("%q after %q: %t", test.is, test.was, got)
		}
	}
}
