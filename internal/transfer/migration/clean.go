package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// runCleaning applies the postponed changes, removes the old CustomResourceDefinitions, and takes the fence down.
func (p *pass) runCleaning(ctx context.Context) error {
	scope := fenceScope{allNamespaces: !keepsKinds(p.system.Group()), copiesOpen: true}
	if fenced, err := p.ensureFenced(ctx, scope); err != nil || !fenced {
		return err
	}
	// The counts in the status stay unchanged, because finished objects no longer have the label of the migration.
	own, err := readOwnObjects(ctx, p.Control, p.migration)
	if err != nil {
		return err
	}
	done, err := p.applyPostponed(ctx, own)
	if err != nil || !done {
		return err
	}
	if done, err := p.removeKinds(ctx); err != nil || !done {
		return err
	}
	if !p.formerLeaderDone() {
		return nil
	}
	if err := p.takeFenceDown(ctx); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationCompleted)
}

// takeFenceDown resumes paused objects, and removes the Leases and the ConfigMap of the fence. The old workloads stay
// stopped.
func (p *pass) takeFenceDown(ctx context.Context) error {
	if err := p.resume(ctx, p.migration); err != nil {
		return err
	}
	if err := p.releaseLeases(ctx, p.migration); err != nil {
		return err
	}
	return p.removeRecord(ctx, p.migration)
}

// applyPostponed applies the postponed changes. Health checks come first, and sets come before their deployments.
func (p *pass) applyPostponed(ctx context.Context, own *ownObjects) (done bool, err error) {
	left := 0
	for _, kind := range [][]client.Object{
		objectsOf(own, own.checks), objectsOf(own, own.classes), objectsOf(own, own.machines),
		objectsOf(own, own.sets), objectsOf(own, own.deployments),
	} {
		left += len(kind)
		if err := forEach(ctx, p.Parallel, kind, p.applyPostponedTo); err != nil {
			return false, err
		}
	}
	secrets, err := p.secretsOfMigration(ctx, own)
	if err != nil {
		return false, err
	}
	if left += len(secrets); left > 0 {
		p.requeueAfter = nextPassDelay
	}
	return left == 0, forEach(ctx, p.Parallel, secrets, p.applyPostponedTo)
}

func (p *pass) secretsOfMigration(ctx context.Context, own *ownObjects) ([]client.Object, error) {
	list := &corev1.SecretList{}
	if err := p.Control.List(ctx, list, client.InNamespace(p.migration.Namespace),
		client.MatchingLabels{v1beta1.LabelMigration: p.migration.Name}); err != nil {
		return nil, fmt.Errorf("list the Secrets of the migration: %w", err)
	}
	var all []client.Object
	for i := range list.Items {
		if own.hasCreated(&list.Items[i]) {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

func objectsOf[P client.Object](own *ownObjects, index map[string]P) []client.Object {
	var all []client.Object
	for _, object := range createdOf(own, index) {
		all = append(all, object)
	}
	return all
}

// applyPostponedTo applies the postponed changes to one object. The same patch removes the record of these changes and
// the label of the migration, so the changes are applied only once.
func (p *pass) applyPostponedTo(ctx context.Context, object client.Object) error {
	if postponedFor(object).Delete && object.GetDeletionTimestamp().IsZero() {
		uid := object.GetUID()
		if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s, which was being deleted in the old system: %w", kindOf(object), object.GetName(),
				err)
		}
	}
	patch := completionPatch(object)
	patch["metadata"].(map[string]any)["uid"] = object.GetUID()
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	err = p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, data))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("complete %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

// keepsKinds reports whether the old kinds are needed after a migration. OpenShift's operator would create their
// definitions again, and Cluster API still manages control planes.
func keepsKinds(group string) bool {
	return group == provider.SourceOpenShift || group == provider.SourceClusterAPI
}

// removeKinds removes the old CustomResourceDefinitions, the class kind last. removeKinds waits until no namespace
// has contained an old object for Timing.EmptyFor. A definition stays if the old operator would create it again, or
// if it is still needed.
func (p *pass) removeKinds(ctx context.Context) (done bool, err error) {
	if keepsKinds(p.system.Group()) {
		return true, nil
	}
	others, err := p.othersOfSource(ctx)
	if err != nil || others {
		return others, err
	}
	kinds := slices.Clone(p.system.Kinds())
	slices.Reverse(kinds)
	for _, kind := range kinds {
		objects, err := readKind(ctx, p.Control, kind, "")
		switch {
		case notServed(err):
		case err != nil:
			return false, fmt.Errorf("list %s.%s: %w", kind.Resource, kind.Group, err)
		case len(objects) > 0:
			p.metFor(p.migration, untilEmpty, false)
			p.remainingObjects = fmt.Sprintf("The CustomResourceDefinitions of the old kinds stay, because %s in namespace %q does "+
				"not belong to this migration.", nameOf(objects[0]), objects[0].GetNamespace())
			return true, nil
		}
	}
	if p.metFor(p.migration, untilEmpty, true) < p.Timing.EmptyFor {
		return false, nil
	}
	left := 0
	for _, kind := range kinds {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := p.Control.Get(ctx, client.ObjectKey{Name: kind.Resource + "." + kind.Group}, definition)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read the definition of %s.%s: %w", kind.Resource, kind.Group, err)
		}
		if err != nil {
			continue
		}
		left++
		if definition.DeletionTimestamp.IsZero() {
			if err := p.Control.Delete(ctx, definition, preconditionsFor(definition)); client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("remove the definition of %s.%s: %w", kind.Resource, kind.Group, err)
			}
		}
	}
	return left == 0, nil
}

func (p *pass) othersOfSource(ctx context.Context) (bool, error) {
	all := &v1beta1.MigrationList{}
	if err := p.Control.List(ctx, all); err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(m v1beta1.Migration) bool {
		return m.UID != p.migration.UID && m.Spec.Source == p.migration.Spec.Source && !m.Status.Phase.HasEnded()
	}), nil
}
