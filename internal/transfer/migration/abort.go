package migration

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// runAborting runs the phase Aborting, which returns the fleet to the old system. First, the provider stops. Then the
// migrator removes Machinist's tags and objects. Only after that, the old controllers may act again on their
// unchanged objects.
func (p *pass) runAborting(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(p.migration, v1beta1.MigrationFinalizer) {
		changed, err := p.changedAnything(ctx)
		if err != nil {
			return err
		}
		if !changed {
			return p.enter(v1beta1.MigrationAborted)
		}
		// Another client has removed the finalizer, although the migrator has changed objects.
		if err := p.ensureFinalizer(ctx); err != nil {
			return err
		}
	}
	if fenced, err := p.ensureFenced(ctx, fenceScope{aborting: true}); err != nil || !fenced {
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
	return p.enter(v1beta1.MigrationAborted)
}

// changedAnything reports whether the migrator has changed any object. The migrator writes two records before it
// changes other objects: the workloads and Leases in status.fence, and the ConfigMap of the policies.
func (p *pass) changedAnything(ctx context.Context) (bool, error) {
	if f := p.migration.Status.Fence; len(f.Workloads)+len(f.Leases) > 0 {
		return true, nil
	}
	return p.recordExists(ctx, p.migration)
}

// pauseAll pauses each Machine. It returns true when the provider has confirmed each pause, and earlier cloud calls
// have had time to end.
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
	if p.unchangedFor(p.migration, strconv.Itoa(len(acting))) >= stallTimeout && len(acting) > 0 {
		p.addTrouble("The process of provider %s has not confirmed the pause (condition Paused) of %s. "+
			"Check that the process runs and leads: the instances are returned only when all machines are paused",
			p.migration.Spec.Provider, examples(len(acting), "machine", acting[0].Name))
	}
	paused := p.metFor(p.migration, untilPaused, len(acting) == 0)
	return len(acting) == 0 && paused >= p.Cloud.CreateSettle(), nil
}

// disownAll removes Machinist's tags from the instances. It returns true when a later pass finds no tags.
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
		// The list of tags may be outdated. If Machinist may have adopted an instance, disown the instance once, even
		// if the list shows no tags.
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
	return left == 0, nil
}

func (p *pass) clearOwnKeys(ctx context.Context, own *ownObjects, targetNodes nodes) (bool, error) {
	var marked []*corev1.Node
	for _, m := range own.migratedMachines() {
		for _, node := range targetNodes.byProviderID[m.NodeProviderID()] {
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

// removeMachines deletes the paused Machines and then removes their finalizers. The provider would add the finalizer
// again to a Machine that is not being deleted.
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
		return nil
	}
	uid := object.GetUID()
	if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}
