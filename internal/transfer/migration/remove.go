package migration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

// removing deletes the old objects, when none of their webhooks can refuse it. All of them lose finalizers and owners
// first, so that nothing cascades and no controller that came back finds a request to tear something down.
func (p *pass) removing(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	scope, err := p.inScope(ctx)
	if err != nil {
		return err
	}
	p.migration.Status.Machines.Old = int32(len(scope[source.RoleMachine]))
	if removed, err := p.removeWebhooks(ctx, scope); err != nil || removed {
		return err // An API server heeds a change of its webhooks after a moment.
	}
	var bound []*unstructured.Unstructured
	for _, role := range removalOrder {
		for _, object := range scope[role] {
			if len(object.GetFinalizers())+len(object.GetOwnerReferences()) > 0 {
				bound = append(bound, object)
			}
		}
	}
	if err := each(ctx, p.Parallel, bound, p.strip); err != nil {
		return err
	}
	left := 0
	for _, role := range removalOrder {
		left += len(scope[role])
		if err := each(ctx, p.Parallel, scope[role], p.removeOld); err != nil {
			return err
		}
	}
	if left > 0 {
		p.again = soon // The next pass looks whether they are gone.
		return nil
	}
	if err := p.releaseSecrets(ctx); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationCleaning)
}

// removeOld deletes an old object as it was read. What it owned has lost it as its owner.
func (p *pass) removeOld(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.Control.Delete(ctx, object, exactly(object), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the old %s: %w", nameOf(object), err)
	}
	return nil
}

// releaseSecrets removes the old system's finalizers from the Secrets that its objects referred to.
func (p *pass) releaseSecrets(ctx context.Context) error {
	own := []string{p.system.Group() + "/"}
	var protected []*corev1.Secret
	empty := func() *corev1.SecretList { return &corev1.SecretList{} }
	err := eachPage(ctx, p.Control, empty, func(page *corev1.SecretList) {
		for i := range page.Items {
			if slices.ContainsFunc(page.Items[i].Finalizers, func(f string) bool { return names(own, f) }) {
				protected = append(protected, &page.Items[i])
			}
		}
	}, client.InNamespace(p.migration.SourceNamespaceOrDefault()))
	if err != nil {
		return fmt.Errorf("list the Secrets of the old system: %w", err)
	}
	return each(ctx, p.Parallel, protected, func(ctx context.Context, secret *corev1.Secret) error {
		changed := secret.DeepCopy()
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return names(own, f) })
		patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
		if err := p.Control.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the old system's finalizer from Secret %s: %w", secret.Name, err)
		}
		return nil
	})
}

// removalOrder is that in which nothing notices that another object is missing: what makes machines goes before them.
var removalOrder = []source.Role{source.RoleHealthCheck, source.RoleDeployment, source.RoleSet, source.RoleClass,
	source.RoleMachine}

// inScope are the old objects that go: all but those that stay behind, and the classes, which these need.
func (p *pass) inScope(ctx context.Context) (map[source.Role][]*unstructured.Unstructured, error) {
	scope := map[source.Role][]*unstructured.Unstructured{}
	staying := false
	err := eachOld(ctx, p.Control, p.system, p.migration.SourceNamespaceOrDefault(), true,
		func(role source.Role, object *unstructured.Unstructured) {
			if role != source.RoleClass { // A class has no object of its own.
				if c := p.system.Convert(role, object, nil); c.Object == nil && !c.Blocked() {
					staying = true
					return
				}
			}
			bare(object)
			scope[role] = append(scope[role], object)
		})
	if staying {
		delete(scope, source.RoleClass)
	}
	return scope, err
}

// bare leaves of an object what its removal needs.
func bare(object *unstructured.Unstructured) {
	plain := &unstructured.Unstructured{Object: map[string]any{}}
	plain.SetGroupVersionKind(object.GroupVersionKind())
	plain.SetNamespace(object.GetNamespace())
	plain.SetName(object.GetName())
	plain.SetUID(object.GetUID())
	plain.SetResourceVersion(object.GetResourceVersion())
	plain.SetFinalizers(object.GetFinalizers())
	plain.SetOwnerReferences(object.GetOwnerReferences())
	object.Object = plain.Object
}

// strip removes finalizers and owners of an old object.
func (p *pass) strip(ctx context.Context, object *unstructured.Unstructured) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"uid":%q,"finalizers":null,"ownerReferences":null}}`,
		object.GetResourceVersion(), object.GetUID())
	err := p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizers and owners of the old %s: %w", nameOf(object), err)
	}
	bare(object) // The response has all of it.
	return nil
}
