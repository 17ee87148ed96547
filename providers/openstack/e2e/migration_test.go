//go:build e2e

package e2e

import (
	"context"
	"math/rand/v2"
	"strings"
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
	random    *rand.Rand
}

// An old system with its own controller has servers in a real OpenStack, whose guests run pods. In a full run, the
// migration is first aborted in every phase. Then it is completed, while the migrators, the provider and the old
// controller are killed at random moments. The servers keep their IDs, boot times, ports and volumes. No Node is
// disturbed, and no pod is deleted.
//
// Rules: migration-touches-no-machine, migration-survives-kills, migration-abort-restores,
// migration-old-controller-fenced, migration-removes-old-objects.
func TestMigrationTakesServersOver(t *testing.T) {
	groups := []string{provider.SourceGardener, provider.SourceClusterK8s, provider.SourceOpenShift}
	machines, kills := 4, 2
	if !fullRun() {
		groups, machines, kills = groups[:1], 2, 1
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			seed := uint64(1) // The seed is fixed, so that no run fails by chance.
			if fullRun() {
				seed = rand.Uint64()
			}
			t.Logf("seed %d", seed)
			f := startOldFleet(t, group, machines)
			m := f.migrate()
			m.random = rand.New(rand.NewPCG(seed, 0))
			if fullRun() {
				for _, phase := range []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing,
					v1beta1.MigrationSettling, v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted} {
					m.abortIn(phase)
				}
			}
			m.complete(kills)
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
			"--fence-probe-interval=50ms", "--fence-lease-margin=1s", "--remove-kinds-after=1s", "--create-settle=1s",
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
	return m
}

// create creates a Migration, and waits for its plan.
func (m *takeover) create(name string) (losses []string) {
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
	return m.AwaitPlan()
}

// abortIn aborts a migration in a phase. Afterwards, everything must be as before, and the old controller must find
// nothing to do.
func (m *takeover) abortIn(phase v1beta1.MigrationPhase) {
	m.oldFleet.Helper()
	w := m.watch()
	losses := m.create("until-" + strings.ToLower(string(phase)))
	if phase != v1beta1.MigrationPlanning {
		m.SetStage(v1beta1.MigrationAdopt, losses...)
		// A busy process may see the phase too late.
		m.Migration.Await("the phase "+string(phase), func(o *v1beta1.Migration) bool {
			return o.Status.Phase == phase || o.Status.Phase == v1beta1.MigrationAdopted
		})
	}
	settled := m.mark()
	m.SetStage(v1beta1.MigrationAbort)
	m.AwaitPhase(v1beta1.MigrationAborted)
	m.wantServersAsBefore()
	m.wantOldObjects()
	m.wantUndisturbed(w)
	if phase == v1beta1.MigrationPlanning {
		return // The migration has not stopped the old controller in this phase.
	}
	m.awaitSettled(settled)
	if changes := m.changesSince(settled); len(changes) > 0 {
		m.oldFleet.Errorf("after the abort in %s, the old controller changed something:\n%s", phase, strings.Join(changes, ""))
	}
}

// complete migrates the fleet while processes are killed.
func (m *takeover) complete(kills int) {
	m.oldFleet.Helper()
	w := m.watch()
	losses := m.create("over")
	m.KillUntil(m.random, kills, v1beta1.MigrationPlanning, m.kill)
	m.SetStage(v1beta1.MigrationAdopt, losses...)
	m.KillUntil(m.random, kills, v1beta1.MigrationAdopted, m.kill)
	m.wantOldObjects()
	m.wantServersWithTags()
	m.wantUndisturbed(w)
	w = m.watch()
	m.SetStage(v1beta1.MigrationCommit)
	m.KillUntil(m.random, kills, v1beta1.MigrationCompleted, m.kill)
	m.wantServersWithTags(collectorKey)
	m.wantUndisturbed(w)
	m.wantNoOldObjects()
}

// kill restarts some of the migrators, the provider and the old controller.
func (m *takeover) kill(v1beta1.MigrationPhase) {
	m.oldFleet.Helper()
	all := []func(){m.restartController}
	for _, process := range append([]*child.Process{m.Provider}, m.migrators...) {
		all = append(all, func() {
			err := process.Kill()
			if err == nil {
				err = process.Start()
			}
			if err != nil {
				m.oldFleet.Fatal(err)
			}
		})
	}
	m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, restart := range all[:1+m.random.IntN(len(all))] {
		restart()
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
		if err := m.oldFleet.Control.DeleteAllOf(context.Background(), kind, client.InNamespace(fleet.Namespace)); err != nil {
			m.oldFleet.Fatal(err)
		}
	}
	m.WaitGone()
}
