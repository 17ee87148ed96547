//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fleet"
)

// The migrators and the old controller are killed at random moments, and the old controller is scaled up again. The
// fleet must be migrated exactly once, without any disturbance of its machines.
//
// Rules: migration-survives-kills, migration-touches-no-machine, migration-committed-goes-on,
// migration-removes-old-webhooks.
func TestMigrationSurvivesKills(t *testing.T) {
	t.Parallel()
	// Gardener has more kinds than any other old system.
	groups, machines, kills := []string{provider.SourceGardener}, 12, 1
	if isFull() {
		groups, machines, kills = slices.Sorted(maps.Keys(oldGroups)), 100, 3
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			seed := uint64(1) // The seed is fixed, so that no run fails by chance.
			if isFull() {
				seed = rand.Uint64()
			}
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			f := start(t, stack.Options{}).oldFleet(group, machines)
			f.breakWebhook()
			w := f.watch()
			m := f.startMigrators(2)
			m.createMigration("over")
			kill := m.kills(random, kills)
			m.Adopt(kill)
			m.wantOldObjects()
			m.wantUndisturbed(w)
			w = f.watch()
			m.Commit(kill)
			m.wantUndisturbed(w)
			if group != provider.SourceOpenShift { // The operator of OpenShift would restore the CRDs.
				m.wantNoOldKinds()
			}
			m.wantNoOldWebhook()
			m.awaitRunning(machines)
			m.wantDistinctInstances()
			m.wantManaged()
			if group == provider.SourceGardener || group == provider.SourceClusterK8s {
				m.wantDeploymentWorks()
			}
		})
	}
}

// kills restarts some of the migrators and the old controllers in each phase, and may scale up the old controller.
func (m *migration) kills(random *rand.Rand, perPhase int) fleet.Kills {
	return fleet.Kills{Random: random, PerPhase: perPhase, Kill: func(phase v1beta1.MigrationPhase) {
		m.t.Helper()
		m.restart(fleet.Some(random, append(slices.Concat(m.migrators, m.others), m.controller))...)
		if phase != v1beta1.MigrationPlanning && random.IntN(3) == 0 {
			m.scaleWorkload(1)
		}
	}}
}

func (m *migration) wantDistinctInstances() {
	m.t.Helper()
	by := map[string]string{}
	for _, machine := range m.machineList() {
		if other, taken := by[machine.Spec.ProviderID]; taken {
			m.t.Errorf("machines %s and %s have the same instance %s", machine.Name, other, machine.Spec.ProviderID)
		}
		by[machine.Spec.ProviderID] = machine.Name
	}
}

func (m *migration) wantDeploymentWorks() {
	m.t.Helper()
	all, d := len(m.machineList()), m.deployment()
	replicas := int(d.ReplicasOrDefault())
	class := &v1beta1.MachineClass{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: namespace,
		Name: d.Spec.Template.Spec.ClassRef.Name}, class); err != nil {
		m.t.Fatal(err)
	}
	class = &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "next"}, Spec: class.Spec}
	if err := m.control.Create(context.Background(), class); err != nil {
		m.t.Fatal(err)
	}
	m.patch(d, `{"spec":{"minReadySeconds":0,"strategy":{"rollingUpdate":{"maxSurge":"100%"}},`+
		`"template":{"spec":{"classRef":{"name":"next"}}}}}`)
	m.await("the rollout", func(machines []v1beta1.Machine) bool {
		rolled := slices.DeleteFunc(slices.Clone(machines), func(o v1beta1.Machine) bool {
			return o.Spec.ClassRef.Name != class.Name || o.Status.Phase != v1beta1.MachineRunning
		})
		return len(rolled) == replicas && len(machines) == all
	})
	m.patch(d, `{"spec":{"replicas":1}}`)
	m.awaitRunning(all - replicas + 1)
	if err := m.control.Delete(context.Background(), d); err != nil {
		m.t.Fatal(err)
	}
	m.awaitRunning(all - replicas)
	eventually(m.t, "the instances of the deployment are gone", func() (bool, string) {
		n := m.countLive()
		return n == all-replicas+m.staying, fmt.Sprint(n)
	})
}

func (m *migration) patch(d *v1beta1.MachineDeployment, patch string) {
	m.t.Helper()
	if err := m.control.Patch(context.Background(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		m.t.Fatal(err)
	}
}
