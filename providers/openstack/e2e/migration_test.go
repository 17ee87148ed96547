//go:build e2e

package e2e

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/driver"
	"machinist.dev/machinist/test/fleet"
)

// takeover migrates a fleet of an old system with two migrator processes.
type takeover struct {
	*oldFleet
	*fleet.Migration
	migrators []*child.Process
	kills     fleet.Kills
	// restarting is locked while a process is restarted.
	restarting sync.Mutex
}

// abortedIn contains the phases in which the migration of a fleet is aborted before it is completed. Gardener has
// more kinds of objects than the other old systems.
var abortedIn = map[string][]v1beta1.MigrationPhase{
	provider.SourceClusterK8s: {v1beta1.MigrationAdopted},
	provider.SourceOpenShift:  {v1beta1.MigrationAdopted},
	provider.SourceGardener: {v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
		v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted},
}

// An old system with its own controller has servers in a real OpenStack, whose guests run pods. Migrations are
// aborted, and one is completed, while the migrators, the provider and the old controller are killed at random
// moments. The servers keep their IDs, boot times, ports and volumes. No Node is disturbed, and no pod is deleted.
//
// Rules: migration-touches-no-machine, migration-survives-kills, migration-abort-restores,
// migration-old-controller-fenced, migration-removes-old-objects.
func TestMigrationTakesServersOver(t *testing.T) {
	if !fullRun() {
		t.Skip("FULL=1 runs it. TestServersOfOtherSystemsAreTakenOver tests the driver in every run.")
	}
	const machines, kills = 3, 2
	for _, group := range slices.Sorted(maps.Keys(abortedIn)) {
		t.Run(group, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			f := startOldFleet(t, group, machines)
			m := f.migrate()
			m.kills = fleet.Kills{Random: rand.New(rand.NewPCG(seed, 0)), PerPhase: kills, Kill: m.kill}
			for _, phase := range abortedIn[group] {
				m.abortIn(phase)
			}
			m.complete()
			m.checkManaged()
		})
	}
}

// migrate starts two migrators. Each migration needs create.
func (f *oldFleet) migrate() *takeover {
	f.Helper()
	m := &takeover{oldFleet: f, Migration: &fleet.Migration{T: f.T, Control: f.Control, Patience: f.Patience}}
	for _, name := range []string{"migrator-1", "migrator-2"} {
		migrator, err := f.NewMigrator(f.Context(), []string{fleet.Namespace, f.namespace}, name,
			"--fence-probe-interval=50ms", "--fence-lease-margin=1s", "--remove-kinds-after=1s",
			"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=5s",
			"--leader-election-retry-period=500ms")
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() {
			if f.Failed() {
				f.Log(migrator.LogTail())
			}
			if err := migrator.Kill(); err != nil {
				f.Error(err)
			}
		})
		if err := migrator.Start(); err != nil {
			f.Fatal(err)
		}
		m.migrators = append(m.migrators, migrator)
	}
	m.keepRunning(append([]*child.Process{m.Manager, m.Provider}, m.migrators...)...)
	return m
}

// keepRunning restarts processes that end, as a Deployment would. A process ends if it cannot renew its Lease.
func (m *takeover) keepRunning(processes ...*child.Process) {
	ctx, stop := context.WithCancel(context.WithoutCancel(m.oldFleet.Context()))
	var all sync.WaitGroup
	for _, process := range processes {
		all.Go(func() {
			for {
				m.restarting.Lock()
				if !process.IsRunning() && ctx.Err() == nil {
					if err := process.Start(); err != nil {
						m.oldFleet.Errorf("start %s again: %v", process.Name, err)
					}
				}
				done := process.Done()
				m.restarting.Unlock()
				select {
				case <-ctx.Done():
					return
				case <-done:
				}
			}
		})
	}
	m.oldFleet.Cleanup(func() { stop(); all.Wait() })
}

func (m *takeover) create(name string) {
	m.oldFleet.Helper()
	object := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.MigrationSpec{
		Source: m.group, SourceNamespace: m.namespace, Provider: driver.Name,
		UserDataRef: &v1beta1.UserDataRef{Name: m.userData},
		Fence: v1beta1.MigrationFence{Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment", Namespace: m.namespace,
			Name: m.controllerName}}}}}
	for _, lease := range m.leases {
		object.Spec.Fence.Leases = append(object.Spec.Fence.Leases,
			v1beta1.MigrationLease{Namespace: m.namespace, Name: lease})
	}
	m.Create(object)
	m.Key = client.ObjectKeyFromObject(object)
}

// abortIn aborts a migration in a phase. Afterwards, everything must be as before, and the old controller must find
// nothing to do.
func (m *takeover) abortIn(phase v1beta1.MigrationPhase) {
	m.oldFleet.Helper()
	w := m.watch()
	begun := m.mark()
	m.create("until-" + strings.ToLower(string(phase)))
	m.AbortIn(phase, func() { m.kill(phase) })
	m.wantServersAsBefore()
	m.wantOldObjects()
	m.wantUndisturbed(w)
	m.restartController()
	m.awaitSettled(m.mark())
	if changes := m.changesSince(begun); len(changes) > 0 {
		m.oldFleet.Errorf("the old controller changed something before or after the abort in %s:\n%s", phase,
			strings.Join(changes, ""))
	}
}

// complete migrates the fleet while processes are killed.
func (m *takeover) complete() {
	m.oldFleet.Helper()
	w := m.watch()
	m.create("over")
	m.Adopt(m.kills)
	m.wantOldObjects()
	m.wantServersWithTags()
	m.wantUndisturbed(w)
	w = m.watch()
	m.Commit(m.kills)
	m.wantServersWithTags(collectorKey)
	m.wantUndisturbed(w)
	m.wantNoOldObjects()
}

// kill ends some of the migrators, the provider and the old controller. All of them start again.
func (m *takeover) kill(v1beta1.MigrationPhase) {
	m.oldFleet.Helper()
	all := []func(){m.restartController}
	for _, process := range append([]*child.Process{m.Provider}, m.migrators...) {
		all = append(all, func() {
			if err := process.Kill(); err != nil { // keepRunning starts the process again.
				m.oldFleet.Fatal(err)
			}
		})
	}
	m.restarting.Lock()
	defer m.restarting.Unlock()
	for _, end := range fleet.Some(m.kills.Random, all) {
		end()
	}
}

// checkManaged requires that Machinist replaces a deleted machine, and deletes all servers with their parts.
func (m *takeover) checkManaged() {
	m.oldFleet.Helper()
	running := func(all []v1beta1.Machine) bool {
		for i := range all {
			if all[i].Status.Phase != v1beta1.MachineRunning || !all[i].DeletionTimestamp.IsZero() {
				return false
			}
		}
		return len(all) == len(m.before)
	}
	all := m.oldFleet.Await("the adopted machines run", running)
	for i := range all {
		if _, known := m.before[all[i].Spec.ProviderID]; !known {
			m.oldFleet.Errorf("machine %s has the server %s, which the old system did not create", all[i].Name,
				all[i].Spec.ProviderID)
		}
	}
	deleted := all[0].Spec.ProviderID
	if err := m.oldFleet.Control.Delete(m.oldFleet.Context(), &all[0]); err != nil {
		m.oldFleet.Fatal(err)
	}
	m.oldFleet.Await("the deleted machine is replaced", func(all []v1beta1.Machine) bool {
		for i := range all {
			if all[i].Spec.ProviderID == deleted {
				return false
			}
		}
		return running(all)
	})
	for _, kind := range []client.Object{&v1beta1.MachineDeployment{}, &v1beta1.MachineSet{}} {
		err := m.oldFleet.Control.DeleteAllOf(m.oldFleet.Context(), kind, client.InNamespace(fleet.Namespace))
		if err != nil {
			m.oldFleet.Fatal(err)
		}
	}
	m.WaitGone()
}
