package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// aborting gives the fleet back to the old system. First the provider stops acting on the instances, then Machinist's
// tags are removed, then its objects. Only then may the old controllers act again. They find their objects as they left
// them.
func (p *pass) aborting(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(p.migration, v1beta1.MigrationFinalizer) {
		changed, err := p.changedAnything(ctx)
		if err != nil {
			return err
		}
		if !changed {
			return p.enter(v1beta1.MigrationAborted)
		}
		// Another client removed the finalizer, which does not undo the changes.
		if err := p.ensureFinalizer(ctx); err != nil {
			return err
		}
	}
	if fenced, err := p.ensureFenced(ctx, fenceScope{ignoreMissing: true}); err != nil || !fenced {
		return err
	}
	own, targetNodes, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	steps := []func(context.Context, *ownObjects, nodes) (done bool, err error){
		p.pauseAll, p.disownAll, p.clearOwnKeys, p.removeMachines, p.removeRest,
	}
	for i, step := range steps {
		done, err := step(ctx, own, targetNodes)
		if err != nil || !done {
			if i > 0 && p.troubleCount == 0 {
				p.requeueAfter = min(p.requeueAfter, recheckDelay) // Only the first step waits for another process.
			}
			return err
		}
	}
	if !p.formerLeaderDone() {
		return nil
	}
	if err := p.takeFenceDown(ctx); err != nil {
		return err
	}
	if err := p.startWorkloads(ctx, p.migration); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationAborted)
}

// changedAnything reports whether the migrator changed anything yet. The fence is the first change, and it begins with
// the record of the workloads or with that of the fence.
func (p *pass) changedAnything(ctx context.Context) (bool, error) {
	if f := p.migration.Status.Fence; len(f.Workloads)+len(f.Leases) > 0 {
		return true, nil
	}
	return p.recordExists(ctx, p.migration)
}

// pauseAll pauses each Machine. It is done when the provider has confirmed each pause with the condition Paused, and so
// much time has passed that all earlier calls of the provider have ended.
func (p *pass) pauseAll(ctx context.Context, own *ownObjects, _ nodes) (bool, error) {
	machines := own.migratedMachines()
	if len(machines) == 0 {
		return true, nil
	}
	var acting []*v1beta1.Machine
	for _, m := range machines {
		if !hasKey(m.Annotations, v1beta1.AnnotationPaused) {
			if err := p.setAnnotation(ctx, m, v1beta1.AnnotationPaused, true); client.IgnoreNotFound(err) != nil {
				return false, err
			}
			acting = append(acting, m)
		} else if !meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPaused) {
			acting = append(acting, m)
		}
	}
	if p.unchangedFor(p.migration, len(acting)) >= stallTimeout && len(acting) > 0 {
		p.addTrouble("The process of provider %s has not confirmed the pause (condition Paused) of %s, the first is %s. "+
			"Check that the process runs and leads: the instances are given back only when all machines are paused",
			p.migration.Spec.Provider, wording.Count(len(acting), "machine"), acting[0].Name)
	}
	paused := p.metFor(p.migration, untilPaused, len(acting) == 0)
	return len(acting) == 0 && paused >= p.Cloud.CreateSettle(), nil
}

// disownAll removes Machinist's tags from the instances. It is done when a later pass finds no tags.
func (p *pass) disownAll(ctx context.Context, own *ownObjects, _ nodes) (bool, error) {
	machines := own.migratedMachines()
	if len(machines) == 0 {
		return true, nil
	}
	owned, err := p.ownInstances(ctx, own)
	if err != nil {
		return false, err
	}
	tagged := map[types.UID]bool{}
	for _, uid := range owned {
		tagged[uid] = true
	}
	f := p.fenceOf(p.migration)
	left := 0
	for _, m := range machines {
		// The list may be out of date. So this process disowns each instance that may have been adopted once, whatever the
		// list shows.
		if !tagged[m.UID] && (m.Status.Launch == nil && m.Status.Instance == nil || f.disowned[m.UID]) {
			continue
		}
		left++
		class := own.classes[m.Spec.ClassRef.Name]
		if class == nil {
			p.addTrouble("Machine %s: cannot give back its instance, because class %s does not exist any more", m.Name,
				m.Spec.ClassRef.Name)
			continue
		}
		resolved, err := p.classOf(ctx, class)
		if err != nil {
			return false, err
		}
		if err := p.Cloud.Disown(ctx, provider.DisownRequest{Machine: machineIdentity(m), Class: resolved,
			ClusterID: p.ClusterID(), ProviderID: m.Spec.ProviderID, Scope: scopeOf(m)}); err != nil {
			p.addTrouble("Machine %s: give back instance %s: %v", m.Name, m.Spec.ProviderID, err)
			continue
		}
		f.disowned[m.UID] = true
	}
	return left == 0, nil // The next pass checks the result.
}

// clearOwnKeys removes Machinist's keys from the Nodes.
func (p *pass) clearOwnKeys(ctx context.Context, own *ownObjects, targetNodes nodes) (bool, error) {
	var marked []*corev1.Node
	for _, m := range own.migratedMachines() {
		for _, node := range targetNodes.byProviderID[m.Spec.ProviderID] {
			if hasKey(node.Labels, v1beta1.NodeLabelMachine) || hasKey(node.Annotations, v1beta1.NodeAnnotationMachine) ||
				hasKey(node.Annotations, v1beta1.NodeAnnotationLastAppliedNodeTemplate) {
				marked = append(marked, node)
			}
		}
	}
	return len(marked) == 0, forEach(ctx, p.Parallel, marked, func(ctx context.Context, node *corev1.Node) error {
		patch := fmt.Appendf(nil,
			`{"metadata":{"uid":%q,"labels":{%q:null},"annotations":{%q:null,%q:null,%q:null,%q:null}}}`,
			node.UID, v1beta1.NodeLabelMachine, v1beta1.NodeAnnotationMachine, v1beta1.NodeAnnotationClusterNamespace,
			v1beta1.NodeAnnotationInstance, v1beta1.NodeAnnotationLastAppliedNodeTemplate)
		if err := p.Target.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove Machinist's keys from node %s: %w", node.Name, err)
		}
		return nil
	})
}

// removeMachines deletes the Machines and removes their finalizers. They are paused, so the provider does not act on
// them. The deletion comes first, because the provider puts the finalizer back on a Machine that is not being deleted.
func (p *pass) removeMachines(ctx context.Context, own *ownObjects, _ nodes) (bool, error) {
	machines := own.migratedMachines()
	return len(machines) == 0, forEach(ctx, p.Parallel, machines, func(ctx context.Context, m *v1beta1.Machine) error {
		if m.DeletionTimestamp.IsZero() {
			uid := m.UID
			if err := p.Control.Delete(ctx, m, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete Machine %s: %w", m.Name, err)
			}
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, m.UID)
		if err := p.Control.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer of Machine %s: %w", m.Name, err)
		}
		return nil
	})
}

// removeRest deletes the other objects that the migration created: sets, deployments, checks, classes and Secrets.
func (p *pass) removeRest(ctx context.Context, own *ownObjects, _ nodes) (bool, error) {
	for _, kind := range [][]client.Object{
		objectsOf(own, own.sets), objectsOf(own, own.deployments), objectsOf(own, own.checks),
		objectsOf(own, own.classes),
	} {
		if len(kind) > 0 {
			p.reportBlocked(own, kind)
			return false, forEach(ctx, p.Parallel, kind, p.removeOurs)
		}
	}
	secrets, err := p.secretsOfMigration(ctx, own)
	if err != nil {
		return false, err
	}
	p.reportBlocked(own, secrets)
	return len(secrets) == 0, forEach(ctx, p.Parallel, secrets, p.removeOurs)
}

func (p *pass) removeOurs(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil // The controller of this kind removes the finalizer.
	}
	uid := object.GetUID()
	if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}
