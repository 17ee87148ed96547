package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/internal/transfer/migration"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// Migrations is the group of scenarios in which fleets of other systems are migrated.
const Migrations Group = "migrations"

// migrationTiming contains short times, so that a run has few reconciliations without effect.
var migrationTiming = migration.Timing{Probes: 2, ProbeInterval: 2 * time.Second, LeaseMargin: 5 * time.Second,
	EmptyFor: 5 * time.Second, FormerLeader: 2 * leaseDuration, Poll: 6 * time.Second, Replan: 15 * time.Second}

func (p *Process) migrator(origin *Process) ([]wiring.Controller, error) {
	if err := p.cached([]process.Kind{{Object: &v1beta1.Migration{}}}, p.control, wiring.Control); err != nil {
		return nil, err
	}
	w := p.world
	live, fresh := p.live(p.control), p.live(p.control)
	p.migrations = successor(migration.New(migration.Options{
		Cloud:     cloud.New(cloud.Options{Driver: driver{p, w.cloud}, Fence: p.fence, Clock: p.clock}),
		ClusterID: func() string { return clusterID },
		Control:   live, Target: p.live(p.target),
		NewClient: func() (client.Client, error) { return fresh, nil },
		User:      func(context.Context) (string, error) { return Migrator, nil },
		Clock:     w.clock, // The migrator measures waits by the monotonic clock.
		Timing:    migrationTiming, Parallel: 1, SystemNamespace: leases,
	}), origin.migrations)
	return []wiring.Controller{{Name: "migration", Reconciler: p.migrations,
		For: &wiring.Watch{Object: &v1beta1.Migration{}, Predicate: migration.ChangePredicate()}}}, nil
}

var phases = []v1beta1.MigrationPhase{v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling,
	v1beta1.MigrationCopying, v1beta1.MigrationAdopting, v1beta1.MigrationAdopted, v1beta1.MigrationCommitting,
	v1beta1.MigrationRemoving, v1beta1.MigrationCleaning, v1beta1.MigrationCompleted}

const migrationName = "over"

// migrationScenarios returns scenarios in which a fleet is migrated, and in some of them returned to the old system.
func migrationScenarios() []Scenario {
	k := &OldSystem{Group: provider.SourceClusterK8s}
	g := &OldSystem{Group: provider.SourceGardener, Role: true}
	a := &OldSystem{Group: provider.SourceClusterAPI}
	return []Scenario{
		{Name: "migrate-K", Group: Migrations, OldSystem: k, Script: commitMigration, MayDiffer: anyEnd},
		{Name: "migrate-K-abort", Group: Migrations, OldSystem: k, Script: abortMigration, MayDiffer: anyEnd},
		{Name: "migrate-G", Group: Migrations, OldSystem: g, Script: commitMigration, MayDiffer: anyEnd},
		{Name: "migrate-G-abort", Group: Migrations, OldSystem: g, Script: abortMigration, MayDiffer: anyEnd},
		{Name: "migrate-A", Group: Migrations, OldSystem: a, Script: commitMigration, MayDiffer: anyEnd},
		{Name: "migrate-A-abort", Group: Migrations, OldSystem: a, Script: abortMigration, MayDiffer: anyEnd},
	}
}

// beginMigration returns the actions that create a migration and accept its plan. The old deployment is scaled up right
// before. In some runs, the old controller cannot be scaled to 0, or it has a machine that is not migrated.
func beginMigration(r *rand.Rand) []Action {
	actions := []Action{scaleOld(2)}
	if r.IntN(2) == 0 {
		actions = append(actions, createUnmigrated())
	}
	return append(actions, migrate(r.IntN(3) > 0), acceptPlan())
}

func commitMigration(r *rand.Rand) []Action {
	return append(beginMigration(r), changeFenced(), stage(v1beta1.MigrationCommit, v1beta1.MigrationAdopted))
}

// changeFenced returns an action that reapplies the manifests of the old sets, and scales the new sets to 0. The fence
// must refuse the change of the old sets and the change of the new sets.
func changeFenced() Action {
	return Action{Name: "change the old and the new sets behind the fence",
		Condition: func(w *World) bool { return w.phase() == v1beta1.MigrationAdopted },
		Do: func(ctx context.Context, w *World, c client.Client) error {
			if w.corrupted != nil {
				return nil // A corrupted record of the fence protects nothing until the migrator restores it.
			}
			try := func(o client.Object, patch string) {
				err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))
				w.logf("change %s: %v", o.GetName(), err) // The oracle judges what changes.
			}
			for _, s := range w.legacy.objects(source.RoleSet) {
				try(w.legacy.editable(source.RoleSet, s), `{"metadata":{"labels":{"applied":"again"}}}`)
			}
			for _, s := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
				try(&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), Name: s.GetName()}},
					`{"spec":{"replicas":0}}`)
			}
			return nil
		}}
}

func abortMigration(r *rand.Rand) []Action {
	phase := phases[1+r.IntN(5)]
	return append(beginMigration(r), stage(v1beta1.MigrationAbort, phase))
}

func scaleOld(n int) Action {
	return Action{Name: fmt.Sprintf("scale the old deployment to %d", n),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			d := w.legacy.objects(source.RoleDeployment)[0]
			return c.Patch(ctx, w.legacy.editable(source.RoleDeployment, d),
				client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
		}}
}

func createUnmigrated() Action {
	return Action{Name: "create an old machine in another namespace", Do: func(ctx context.Context, w *World,
		c client.Client) error {
		if w.legacy.system.Group() == provider.SourceGardener || w.legacy.isClusterAPI() {
			return nil // The machine would need its own class, or its own Cluster.
		}
		m := w.legacy.object(source.RoleMachine, otherNamespace, w.legacy.machineSpec())
		m.SetNamespace(otherNamespace)
		m.SetFinalizers(w.legacy.machineFinalizers())
		return c.Create(ctx, m)
	}}
}

// migrate returns an action that creates the Migration. If the old controller cannot be stopped, only its Lease and the
// policy keep it from acting.
func migrate(stops bool) Action {
	return Action{Name: fmt.Sprintf("create the migration (the old controller can be stopped: %t)", stops),
		Do: func(ctx context.Context, w *World, c client.Client) error {
			m := &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: migrationName}}
			m.Spec.Source, m.Spec.SourceNamespace, m.Spec.Provider = w.legacy.system.Group(), oldNamespace, providerName
			m.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "plain"}
			lease := w.legacy.system.Leases(providerName)[0].Name
			m.Spec.Fence.Leases = []v1beta1.MigrationLease{{Namespace: oldNamespace, Name: lease}}
			if stops && !w.legacy.isClusterAPI() { // The controllers of Cluster API contain webhooks.
				m.Spec.Fence.Workloads = []v1beta1.MigrationWorkload{{Kind: "Deployment", Namespace: oldNamespace,
					Name: oldController}}
			}
			return c.Create(ctx, m)
		}}
}

func (w *World) migration() *v1beta1.Migration {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Migration")) {
		return o.(*v1beta1.Migration)
	}
	return nil
}

func (w *World) phase() v1beta1.MigrationPhase {
	if m := w.migration(); m != nil {
		return m.Status.Phase
	}
	return ""
}

func acceptPlan() Action {
	return Action{Name: "accept the plan",
		Condition: func(w *World) bool {
			m := w.migration()
			return m != nil && m.Status.PlanHash != "" && !slices.ContainsFunc(m.Status.Findings,
				func(f v1beta1.MigrationFinding) bool { return f.Level == string(provider.FindingBlocker) })
		},
		Do: func(ctx context.Context, w *World, c client.Client) error {
			m := w.migration().DeepCopy()
			m.Spec.Stage, m.Spec.PlanHash = v1beta1.MigrationAdopt, m.Status.PlanHash
			for _, f := range m.Status.Findings {
				if f.Level == string(provider.FindingLoss) {
					m.Spec.Accept = append(m.Spec.Accept, f.Code)
				}
			}
			return c.Update(ctx, m)
		}}
}

func stage(s v1beta1.MigrationStage, since v1beta1.MigrationPhase) Action {
	return Action{Name: fmt.Sprintf("set the stage %s in phase %s", s, since),
		Condition: func(w *World) bool {
			return slices.Index(phases, w.phase()) >= slices.Index(phases, since)
		},
		Do: func(ctx context.Context, w *World, c client.Client) error {
			m := w.migration().DeepCopy()
			m.Spec.Stage = s
			return c.Update(ctx, m)
		}}
}
