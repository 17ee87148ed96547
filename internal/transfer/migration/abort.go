package migration

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// aborting gives the fleet back: first no process of ours touches an instance any more, then our tags go, then our
// objects, and only then may the old controllers act again. They find their objects as they left them.
func (p *pass) aborting(ctx context.Context) error {
	if !controllerutil.ContainsFinalizer(p.migration, v1beta1.MigrationFinalizer) {
		begun, err := p.begun(ctx)
		if err != nil {
			return err
		}
		if !begun {
			return p.enter(v1beta1.MigrationAborted)
		}
		// Somebody else has removed it, which does not undo what was changed.
		if err := p.keep(ctx); err != nil {
			return err
		}
	}
	if stands, err := p.fenced(ctx, fenceScope{lenient: true}); err != nil || !stands {
		return err
	}
	mine, all, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	steps := []func(context.Context, *ours, nodes) (done bool, err error){
		p.pauseAll, p.disownAll, p.clearOwnKeys, p.removeMachines, p.removeRest,
	}
	for i, step := range steps {
		done, err := step(ctx, mine, all)
		if err != nil || !done {
			if i > 0 && p.counted == 0 {
				p.again = min(p.again, shortly) // Only the first one waits for another process.
			}
			return err
		}
	}
	if !p.alone() {
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

// begun reports whether anything was changed: a fence begins with the record of the workloads, or with the policy.
func (p *pass) begun(ctx context.Context) (bool, error) {
	if f := p.migration.Status.Fence; len(f.Workloads)+len(f.Leases) > 0 {
		return true, nil
	}
	name := oldPolicyName(p.migration)
	err := p.Control.Get(ctx, client.ObjectKey{Name: name}, &admissionv1.ValidatingAdmissionPolicy{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the policy %s: %w", name, err)
	}
	return err == nil, nil
}

// pauseAll stops the provider's process for each Machine, and waits until Paused is set and what it began has ended.
func (p *pass) pauseAll(ctx context.Context, mine *ours, _ nodes) (bool, error) {
	machines := mine.ofMigration()
	if len(machines) == 0 {
		return true, nil
	}
	var acting []*v1beta1.Machine
	for _, m := range machines {
		if !has(m.Annotations, v1beta1.AnnotationPaused) {
			if err := p.annotation(ctx, m, v1beta1.AnnotationPaused, true); client.IgnoreNotFound(err) != nil {
				return false, err
			}
			acting = append(acting, m)
		} else if !meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionPaused) {
			acting = append(acting, m)
		}
	}
	if p.unchangedFor(p.migration, len(acting)) >= patience && len(acting) > 0 {
		p.trouble("The process of provider %s has not said that it leaves %s alone (condition Paused), the first is %s: see "+
			"whether it runs and leads, as the instances are given back only then", p.migration.Spec.Provider,
			wording.Count(len(acting), "machine"), acting[0].Name)
	}
	paused := p.since(p.migration, untilPaused, len(acting) == 0)
	return len(acting) == 0 && paused >= p.Cloud.CreateSettle(), nil
}

// disownAll removes our tags from the instances, and looks whether they are gone.
func (p *pass) disownAll(ctx context.Context, mine *ours, _ nodes) (bool, error) {
	machines := mine.ofMigration()
	if len(machines) == 0 {
		return true, nil
	}
	owned, err := p.ownInstances(ctx, mine)
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
		// A list may be behind: what may have been adopted is disowned once by this process, whatever the list shows.
		if !tagged[m.UID] && (m.Status.Launch == nil && m.Status.Instance == nil || f.disowned[m.UID]) {
			continue
		}
		left++
		class := mine.classes[m.Spec.ClassRef.Name]
		if class == nil {
			p.trouble("Machine %s: its class %s is gone, so that its instance cannot be given back", m.Name,
				m.Spec.ClassRef.Name)
			continue
		}
		resolved, err := p.classOf(ctx, class)
		if err != nil {
			return false, err
		}
		if err := p.Cloud.Disown(ctx, provider.DisownRequest{Machine: identity(m), Class: resolved, ClusterID: p.ClusterID(),
			ProviderID: m.Spec.ProviderID, Scope: scopeOf(m)}); err != nil {
			p.trouble("Machine %s: give instance %s back: %v", m.Name, m.Spec.ProviderID, err)
			continue
		}
		f.disowned[m.UID] = true
	}
	return left == 0, nil // The next pass looks again.
}

// clearOwnKeys removes our keys from the Nodes.
func (p *pass) clearOwnKeys(ctx context.Context, mine *ours, all nodes) (bool, error) {
	var marked []*corev1.Node
	for _, m := range mine.ofMigration() {
		for _, node := range all.byProviderID[m.Spec.ProviderID] {
			if has(node.Labels, v1beta1.NodeLabelMachine) || has(node.Annotations, v1beta1.NodeAnnotationMachine) ||
				has(node.Annotations, v1beta1.NodeAnnotationLastAppliedNodeTemplate) {
				marked = append(marked, node)
			}
		}
	}
	return len(marked) == 0, each(ctx, p.Parallel, marked, func(ctx context.Context, node *corev1.Node) error {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:null},"annotations":{%q:null,%q:null,%q:null,%q:null}}}`,
			node.UID, v1beta1.NodeLabelMachine, v1beta1.NodeAnnotationMachine, v1beta1.NodeAnnotationClusterNamespace,
			v1beta1.NodeAnnotationInstance, v1beta1.NodeAnnotationLastAppliedNodeTemplate)
		if err := p.Target.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove Machinist's keys from node %s: %w", node.Name, err)
		}
		return nil
	})
}

// removeMachines deletes our Machines. They are paused, so that the provider's process waits; of a Machine that is not
// being deleted it would put the finalizer back.
func (p *pass) removeMachines(ctx context.Context, mine *ours, _ nodes) (bool, error) {
	machines := mine.ofMigration()
	return len(machines) == 0, each(ctx, p.Parallel, machines, func(ctx context.Context, m *v1beta1.Machine) error {
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

// removeRest deletes what else the migration made: sets, deployments, checks, classes, Secrets.
func (p *pass) removeRest(ctx context.Context, mine *ours, _ nodes) (bool, error) {
	for _, kind := range [][]client.Object{
		objectsOf(mine, mine.sets), objectsOf(mine, mine.deployments), objectsOf(mine, mine.checks),
		objectsOf(mine, mine.classes),
	} {
		if len(kind) > 0 {
			p.nameBlocked(mine, kind)
			return false, each(ctx, p.Parallel, kind, p.removeOurs)
		}
	}
	secrets, err := p.secretsOfMigration(ctx, mine)
	if err != nil {
		return false, err
	}
	p.nameBlocked(mine, secrets)
	return len(secrets) == 0, each(ctx, p.Parallel, secrets, p.removeOurs)
}

func (p *pass) removeOurs(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil // The controller of the kind lets it go.
	}
	uid := object.GetUID()
	if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}
