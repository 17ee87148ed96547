package migration

import (
	"context"
	"errors"
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

// runRemoving first deletes webhooks that could refuse the deletions. Then the method removes the finalizers and
// owner references of all old objects, and deletes these objects. The parts of machines are removed before the
// machines, and keep their owner references. Without owner references, the deletion of an object does not delete
// other objects. Without finalizers, a deleted object is gone at once. Otherwise, a restarted old controller could
// find the object that is being deleted, and delete its instance.
func (p *pass) runRemoving(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	scope, err := p.objectsToRemove(ctx)
	if err != nil {
		return err
	}
	p.migration.Status.Machines.Old = int32(len(scope[source.RoleMachine]))
	if removed, err := p.removeWebhooks(ctx, scope); err != nil || removed {
		return err // API servers apply a change of webhooks after a moment.
	}
	var attached []attachment
	for _, role := range removalOrder {
		for _, object := range scope[role] {
			if a := attachmentOf(object, role, len(scope[ownedRole[role]]) > 0); a.finalizers || a.owners {
				attached = append(attached, a)
			}
		}
	}
	if err := forEach(ctx, p.Parallel, attached, p.detach); err != nil {
		return err
	}
	left := 0
	for _, role := range removalOrder {
		if len(scope[ownedRole[role]]) > 0 {
			break
		}
		left += len(scope[role])
		if err := forEach(ctx, p.Parallel, scope[role], p.removeOld); err != nil {
			return err
		}
	}
	if left > 0 {
		p.requeueAfter = nextPassDelay // The next pass checks that the objects are gone.
		return nil
	}
	if len(p.migration.Spec.Exclude) == 0 { // Excluded objects still need their Secrets.
		if err := p.releaseSecrets(ctx); err != nil {
			return err
		}
	}
	return p.enter(v1beta1.MigrationCleaning)
}

// removeOld deletes an old object if it has not changed since it was read. No other object may have an owner reference
// to this object.
func (p *pass) removeOld(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.Control.Delete(ctx, object, preconditionsFor(object),
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the old %s: %w", nameOf(object), err)
	}
	return nil
}

func (p *pass) releaseSecrets(ctx context.Context) error {
	own := []string{p.system.Group() + "/"}
	var protected []*corev1.Secret
	empty := func() *corev1.SecretList { return &corev1.SecretList{} }
	err := eachPage(ctx, p.Control, empty, func(page *corev1.SecretList) {
		for i := range page.Items {
			if slices.ContainsFunc(page.Items[i].Finalizers, func(f string) bool { return matchesAny(own, f) }) {
				protected = append(protected, &page.Items[i])
			}
		}
	}, client.InNamespace(p.migration.SourceNamespaceOrDefault()))
	if err != nil {
		return fmt.Errorf("list the Secrets of the old system: %w", err)
	}
	return forEach(ctx, p.Parallel, protected, func(ctx context.Context, secret *corev1.Secret) error {
		changed := secret.DeepCopy()
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return matchesAny(own, f) })
		patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
		if err := p.Control.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the old system's finalizer from Secret %s: %w", secret.Name, err)
		}
		return nil
	})
}

// removalOrder lists the roles of the old objects in the order in which the migrator deletes the objects. Owners come
// before the objects that they create, so that no controller replaces deleted objects.
var removalOrder = []source.Role{source.RoleHealthCheck, source.RoleDeployment, source.RoleSet, source.RoleClass,
	rolePartOfPart, rolePart, source.RoleMachine}

const (
	// rolePart is the role of the objects that belong to a single old machine.
	rolePart source.Role = "part of a machine"
	// rolePartOfPart is the role of the objects that belong to a part of a machine.
	rolePartOfPart source.Role = "part of a part of a machine"
)

// ownedRole maps a role to the role of the objects that can be found only through objects of this role. The migrator
// removes an object only after a pass that has found no object of the other role. Otherwise, these objects would stay
// if the process ended between two deletions.
var ownedRole = map[source.Role]source.Role{rolePart: rolePartOfPart, source.RoleMachine: rolePart}

// attachment lists the fields of an old object that the migrator clears before it deletes the object.
type attachment struct {
	object             *unstructured.Unstructured
	finalizers, owners bool
}

// attachmentOf returns what the migrator clears in this pass. Parts keep their owner references, by which a later pass
// identifies them. An object with parts keeps its finalizers, because without finalizers, an object that is already
// being deleted would be gone before its parts.
func attachmentOf(object *unstructured.Unstructured, role source.Role, hasParts bool) attachment {
	isPart := role == rolePart || role == rolePartOfPart
	return attachment{object: object, finalizers: !hasParts && len(object.GetFinalizers()) > 0,
		owners: !isPart && len(object.GetOwnerReferences()) > 0}
}

// objectsToRemove returns the old objects that the migrator deletes. The result does not include objects that stay with
// the old system. If at least one object that is not a class stays, all classes stay too.
func (p *pass) objectsToRemove(ctx context.Context) (map[source.Role][]*unstructured.Unstructured, error) {
	scope := map[source.Role][]*unstructured.Unstructured{}
	someStay, excluded := false, newExclusion(p.migration)
	err := eachOld(ctx, p.Control, p.system, p.migration.SourceNamespaceOrDefault(), true,
		func(role source.Role, object *unstructured.Unstructured) {
			if excluded.covers(object) {
				someStay = true
				return
			}
			if role != source.RoleClass { // A class is not converted to an object.
				c := p.system.Convert(role, object, nil)
				if c.Object == nil && !c.HasBlocker() {
					someStay = true
					return
				}
				if c.Machine != nil {
					p.addParts(scope, object.GetNamespace(), c.Machine.Parts)
				}
			}
			trimForRemoval(object)
			scope[role] = append(scope[role], object)
		})
	if someStay {
		delete(scope, source.RoleClass)
	}
	return scope, errors.Join(err, p.linkedError())
}

func trimForRemoval(object *unstructured.Unstructured) {
	trimmed := &unstructured.Unstructured{Object: map[string]any{}}
	trimmed.SetGroupVersionKind(object.GroupVersionKind())
	trimmed.SetNamespace(object.GetNamespace())
	trimmed.SetName(object.GetName())
	trimmed.SetUID(object.GetUID())
	trimmed.SetResourceVersion(object.GetResourceVersion())
	trimmed.SetFinalizers(object.GetFinalizers())
	trimmed.SetOwnerReferences(object.GetOwnerReferences())
	object.Object = trimmed.Object
}

func (p *pass) detach(ctx context.Context, a attachment) error {
	object, cleared := a.object, ""
	if a.finalizers {
		cleared += `,"finalizers":null`
	}
	if a.owners {
		cleared += `,"ownerReferences":null`
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"uid":%q%s}}`, object.GetResourceVersion(),
		object.GetUID(), cleared)
	err := p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizers and owner references of the old %s: %w", nameOf(object), err)
	}
	trimForRemoval(object) // The response contains the whole object.
	return nil
}
