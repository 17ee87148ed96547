package simulation

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	pages "machinist.dev/machinist/internal/health/orphans/ledger"
)

// forceDeleteScenarios returns scenarios in which a Machine is deleted before its instance. In the first scenario, the
// machine is force-deleted while the cloud refuses to delete instances, and the orphan collection removes the rest
// later. In the second scenario, an administrator removes the finalizer after the cloud has accepted the deletion.
func forceDeleteScenarios() []Scenario {
	force := annotateDeleted(v1beta1.AnnotationForceDelete)
	force.Condition = nil
	return []Scenario{{Name: "force-delete-refused", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"),
		Age: 10 * time.Minute, Script: inOrder([]Action{
			trouble("the cloud refuses to delete instances", func(t *cloudProblems) { t.deletes.on = true }),
			deleteMachine(0), force, wait(5 * time.Minute),
			trouble("the cloud deletes instances again", func(t *cloudProblems) { t.deletes.on = false }),
			wait(8 * orphanPeriod),
		}), MayDiffer: anyEnd},
		{Name: "finalizer-stripped-late", Group: Safety, Controllers: Orphans, Base: fleet(2, "a"), Age: 10 * time.Minute,
			Script: inOrder([]Action{deleteMachine(0), stripDeleting(), wait(8 * orphanPeriod)}), MayDiffer: anyEnd},
	}
}

// stripDeleting returns an action that removes a machine's finalizers while the cloud deletes its instance.
func stripDeleting() Action {
	const name = "remove the finalizers of a machine that is being deleted"
	going := func(w *World) (all []*v1beta1.Machine) {
		for _, m := range w.machines() {
			if !m.DeletionTimestamp.IsZero() {
				all = append(all, m)
			}
		}
		return all
	}
	accepted := func(w *World) bool {
		return slices.ContainsFunc(going(w), func(m *v1beta1.Machine) bool {
			return slices.ContainsFunc(w.cloud.instancesOf(m.UID), func(in *instance) bool { return !in.dying.IsZero() })
		})
	}
	return Action{Name: name, Condition: func(w *World) bool { return accepted(w) || len(going(w)) == 0 },
		Do: func(ctx context.Context, w *World, c client.Client) error {
			for _, m := range going(w) {
				if w.cloud.troubles.strippedMachines == nil {
					w.cloud.troubles.strippedMachines = map[uid]bool{}
				}
				w.cloud.troubles.strippedMachines[m.UID] = true
				bare := m.DeepCopy()
				bare.Finalizers = nil
				if err := c.Patch(ctx, bare, client.MergeFrom(m)); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return nil
		}}
}

func (w *World) forced(owner uid) bool {
	for _, o := range w.control.Snapshot(corev1.SchemeGroupVersion.WithKind("ConfigMap")) {
		record := o.(*corev1.ConfigMap)
		if record.Name != pages.Name {
			continue
		}
		for _, text := range record.Data {
			page, err := pages.Decode(text)
			if err != nil {
				continue
			}
			for _, e := range page.ForceDeleted {
				if e.UID == string(owner) {
					return true
				}
			}
		}
	}
	return false
}

// leftByForce reports whether a machine is an exception to I1. A force-deleted machine may be removed before its
// instance, if a record lists the parts that may remain.
func (o *oracle) leftByForce(m *v1beta1.Machine) bool {
	return o.mayHave(m.UID, v1beta1.AnnotationForceDelete) && o.world.forced(m.UID)
}

// leftBehind returns how many instances and Nodes remain after force-deletions, and after a corruption that makes
// Machinist forget an instance. The orphan collection, if it runs, removes them.
func (w *World) leftBehind() (instances, nodes int) {
	if w.safety.optionalReconcilers.has(Orphans) {
		return 0, 0
	}
	for _, in := range w.cloud.instances {
		if w.oracle.machines[in.owner()] != nil || !w.forced(in.owner()) && !(w.corrupted.givesUp() && in.owner() != "") {
			continue
		}
		instances++
		if w.node(in.NodeName) != nil {
			nodes++
		}
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		if w.corrupted.mayLeak() && w.oracle.machineOn(node) == nil && w.cloud.byID(node.Spec.ProviderID) == nil {
			nodes++
		}
	}
	return instances, nodes
}
