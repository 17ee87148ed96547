//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	m.createMigration("until-" + strings.ToLower(string(phase)))
	losses := m.AwaitPlan()
	if phase == v1beta1.MigrationCopying {
		m.allowMachines(2)
	}
	if phase != v1beta1.MigrationPlanning {
		m.SetStage(v1beta1.MigrationAdopt, losses...)
	}
	m.AwaitPhase(phase)
	if phase == v1beta1.MigrationCopying {
		m.Await("half of the copies", func(o *v1beta1.Migration) bool { return len(o.Status.Troubles) > 0 })
		if n := len(m.machineList()); n != 2 {
			m.t.Errorf("got %d copied Machines, want the 2 that the quota allows", n)
		}
	}
	m.logStart = len(m.log())
	m.logRead = m.logStart
	m.SetStage(v1beta1.MigrationAbort)
	if killed == v1beta1.MigrationAborting {
		m.Await("half of an abort", func(o *v1beta1.Migration) bool {
			return o.Status.Phase == v1beta1.MigrationAborting && int(o.Status.Machines.Adopted) < machines-m.staying ||
				o.Status.Phase == v1beta1.MigrationAborted
		})
	}
	if killed != "" {
		m.restart(m.migrators...)
	}
	m.AwaitPhase(v1beta1.MigrationAborted)
	m.wantOldObjects()
	m.wantNothingOfMachinist()
	m.wantUndisturbed(w)
	if phase == v1beta1.MigrationPlanning {
		return // The migration has not stopped the old controller in this phase.
	}
	m.awaitSettled(machines)
	if changes := m.changes(); len(changes) > 0 {
		m.t.Errorf("the old controller changed what it found after the phase %s:\n%s", phase, strings.Join(changes, "\n"))
	}
	if phase == v1beta1.MigrationCopying {
		m.allowMachines(-1)
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

// allowMachines creates a quota of n Machines, so that a migration stops between two copies. A negative n removes the
// quota.
func (m *migration) allowMachines(n int64) {
	m.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machines"}}
	if n < 0 {
		if err := m.control.Delete(context.Background(), quota); err != nil {
			m.t.Fatal(err)
		}
		return
	}
	counted := corev1.ResourceName("count/machines." + v1beta1.GroupName)
	quota.Spec.Hard = corev1.ResourceList{counted: *resource.NewQuantity(n, resource.DecimalSI)}
	if err := m.control.Create(context.Background(), quota); err != nil {
		m.t.Fatal(err)
	}
	eventually(m.t, "the quota is in force", func() (bool, string) {
		err := m.control.Get(context.Background(), client.ObjectKeyFromObject(quota), quota)
		_, counts := quota.Status.Used[counted]
		return err == nil && counts, fmt.Sprint(err, quota.Status)
	})
}
