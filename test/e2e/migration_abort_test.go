//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
)

// abortedIn lists the phases in which a migration is aborted, and the phase in which the migrator is killed, if any.
// The last abort has the most work to undo.
var abortedIn = []struct{ phase, killed v1beta1.MigrationPhase }{
	{v1beta1.MigrationPlanning, ""},
	{v1beta1.MigrationFencing, v1beta1.MigrationFencing},
	{v1beta1.MigrationSettling, ""},
	{v1beta1.MigrationCopying, v1beta1.MigrationCopying},
	{v1beta1.MigrationAdopting, v1beta1.MigrationAdopting},
	{v1beta1.MigrationAdopted, v1beta1.MigrationAborting},
}

// A migration can be aborted in every phase. After an abort, all objects and instances must be as before the
// migration, and the old controller must continue to work. One fleet is migrated and aborted repeatedly.
//
// Rules: migration-abort-restores.
func TestMigrationAbortsInEveryPhase(t *testing.T) {
	onlyInFull(t, "the migrations that are aborted in the deterministic world")
	t.Parallel()
	groups := []string{provider.SourceGardener} // Gardener has more kinds than any other old system.
	if isFull() {
		groups = slices.Sorted(maps.Keys(oldGroups))
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			m := start(t, stack.Options{}).oldFleet(group, 4).startMigrators(1)
			for _, at := range abortedIn {
				m.abortIn(at.phase, at.killed)
			}
			m.wantOldControllerWorks()
		})
	}
}

// abortIn aborts a migration in a phase, and kills the migrator in another phase, if any.
func (m *migration) abortIn(phase, killed v1beta1.MigrationPhase) {
	m.t.Helper()
	machines := len(m.before.instances)
	w := m.watch()
	m.logStart = len(m.log())
	m.logRead = m.logStart
	m.createMigration("until-" + strings.ToLower(string(phase)))
	m.AbortIn(phase, func() {
		if killed == v1beta1.MigrationAborting {
			m.Await("half of an abort", func(o *v1beta1.Migration) bool {
				return o.Status.Phase == v1beta1.MigrationAborting && int(o.Status.Machines.Adopted) < machines-m.staying ||
					o.Status.Phase == v1beta1.MigrationAborted
			})
		}
		if killed != "" {
			m.restart(m.migrators...)
		}
	})
	m.wantOldObjects()
	m.wantNothingOfMachinist()
	m.wantUndisturbed(w)
	if phase == v1beta1.MigrationPlanning {
		return // The migration has not stopped the old controller in this phase.
	}
	m.awaitSettled(machines)
	if changes := m.changes(); len(changes) > 0 {
		m.t.Errorf("the old controller changed something before or after the abort in %s:\n%s", phase,
			strings.Join(changes, "\n"))
	}
}

// wantOldControllerWorks requires that the old controller deletes the instance of a deleted machine.
func (m *migration) wantOldControllerWorks() {
	m.t.Helper()
	machine := m.someMachine()
	eventually(m.t, "the old machine can be deleted", func() (bool, string) {
		err := m.control.Delete(context.Background(), machine)
		return err == nil, fmt.Sprint(err)
	})
	left := len(m.before.instances)
	if metav1.GetControllerOf(machine) == nil {
		left--
	}
	m.awaitSettled(left)
	after := m.state()
	if n := len(after.instances); n != left {
		m.t.Errorf("got %d instances, want %d", n, left)
	}
	for id, r := range after.instances {
		if r.Tags[driver.LegacyTagMachineUID] == string(machine.GetUID()) {
			m.t.Errorf("instance %s of the deleted machine still exists", id)
		}
	}
}
