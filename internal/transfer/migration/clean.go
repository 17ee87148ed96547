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

// cleaning gives our objects what comes later, removes the definitions of the old kinds, and takes the fence down.
func (p *pass) cleaning(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{everywhere: true, oursOpen: true}); err != nil || !stands {
		return err
	}
	mine, err := readOurs(ctx, p.Control, p.migration) // Not counted: what is thawed has no label any more.
	if err != nil {
		return err
	}
	done, err := p.thaw(ctx, mine)
	if err != nil || !done {
		return err
	}
	if done, err := p.removeKinds(ctx); err != nil || !done {
		return err
	}
	if !p.alone() {
		return nil
	}
	if err := p.takeFenceDown(ctx); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationCompleted)
}

// takeFenceDown opens what was closed. The old workloads are not started here.
func (p *pass) takeFenceDown(ctx context.Context) error {
	if err := p.releaseLeases(ctx, p.migration); err != nil {
		return err
	}
	for _, name := range []string{oldPolicyName(p.migration), newPolicyName(p.migration)} {
		if err := p.removePolicy(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// thaw gives our objects what they get when the migration is completed: sets go before their deployments, and checks
// before all.
func (p *pass) thaw(ctx context.Context, mine *ours) (done bool, err error) {
	frozen := 0
	for _, kind := range [][]client.Object{
		objectsOf(mine, mine.checks), objectsOf(mine, mine.classes), objectsOf(mine, mine.machines),
		objectsOf(mine, mine.sets), objectsOf(mine, mine.deployments),
	} {
		frozen += len(kind)
		if err := each(ctx, p.Parallel, kind, p.thawOne); err != nil {
			return false, err
		}
	}
	secrets, err := p.secretsOfMigration(ctx, mine)
	if err != nil {
		return false, err
	}
	if frozen += len(secrets); frozen > 0 {
		p.again = soon // The next pass finds out whether all is done.
	}
	return frozen == 0, each(ctx, p.Parallel, secrets, p.thawOne)
}

// secretsOfMigration are the Secrets that the migration made.
func (p *pass) secretsOfMigration(ctx context.Context, mine *ours) ([]client.Object, error) {
	list := &corev1.SecretList{}
	if err := p.Control.List(ctx, list, client.InNamespace(p.migration.Namespace),
		client.MatchingLabels{v1beta1.LabelMigration: p.migration.Name}); err != nil {
		return nil, fmt.Errorf("list the Secrets of the migration: %w", err)
	}
	var all []client.Object
	for i := range list.Items {
		if mine.made(&list.Items[i]) {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

func objectsOf[P client.Object](mine *ours, index map[string]P) []client.Object {
	var all []client.Object
	for _, object := range madeOf(mine, index) {
		all = append(all, object)
	}
	return all
}

// thawOne gives one object what it was to get later. With the label the record goes, so that it happens once.
func (p *pass) thawOne(ctx context.Context, object client.Object) error {
	if afterOf(object).Delete && object.GetDeletionTimestamp().IsZero() {
		uid := object.GetUID()
		if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s, whose deletion was asked for before: %w", kindOf(object), object.GetName(), err)
		}
	}
	patch := completion(object)
	patch["metadata"].(map[string]any)["uid"] = object.GetUID()
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	err = p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, data))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("thaw %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

// removeKinds removes the definitions of the old kinds, the classes' last, when no object of theirs has existed for a
// while in any namespace. Where another system's operator keeps them, or other objects need them, they stay.
func (p *pass) removeKinds(ctx context.Context) (done bool, err error) {
	if p.system.Group() == provider.SourceOpenShift {
		return true, nil // Its operator would make them again.
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
			p.since(p.migration, untilEmpty, false)
			p.staying = fmt.Sprintf("The definitions of the old kinds stay: %s in namespace %q is not of this migration.",
				nameOf(objects[0]), objects[0].GetNamespace())
			return true, nil
		}
	}
	if p.since(p.migration, untilEmpty, true) < p.Timing.EmptyFor {
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
			if err := p.Control.Delete(ctx, definition, exactly(definition)); client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("remove the definition of %s.%s: %w", kind.Resource, kind.Group, err)
			}
		}
	}
	return left == 0, nil
}

// othersOfSource reports whether another Migration needs the old kinds.
func (p *pass) othersOfSource(ctx context.Context) (bool, error) {
	all := &v1beta1.MigrationList{}
	if err := p.Control.List(ctx, all); err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(m v1beta1.Migration) bool {
		return m.UID != p.migration.UID && m.Spec.Source == p.migration.Spec.Source && !m.Status.Phase.Ended()
	}), nil
}
