package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/internal/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// The phases after the point of no return: Committing, Removing, Cleaning.

// committing removes from instances what the old system would collect them by, and from Nodes what it left there. Only
// then may an old object go.
func (p *pass) committing(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	made, mine, all, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	for _, f := range made.findings {
		if f.Code == CodeCannotImport || f.Code == CodeSecretUnreadable {
			// Instances that cannot be looked for now would pass for such that are gone.
			p.trouble("%s", f.line())
		}
	}
	if p.counted > 0 {
		return nil
	}
	machines := map[types.UID]*v1beta1.Machine{}
	for _, m := range mine.ofMigration() {
		machines[oldUID(m)] = m
	}
	owned, err := p.ownInstances(ctx, mine)
	if err != nil {
		return err
	}
	left := 0
	located := map[types.UID]bool{}
	for _, m := range made.machines {
		located[m.old.GetUID()] = true
		our := machines[m.old.GetUID()]
		switch {
		case our == nil:
			p.trouble("%s has the instance %s and no Machine: its old object stays", m.as, m.instance.ProviderID)
		case owned[m.instance.ProviderID] != our.UID:
			p.trouble("instance %s of %s does not carry the tags of Machine %s", m.instance.ProviderID, m.as, our.Name)
		case m.instance.Collected:
			left++
			if err := p.release(ctx, m, our); err != nil {
				p.trouble("instance %s of %s: %v", m.instance.ProviderID, m.as, err)
			}
		}
	}
	for uid, our := range machines {
		if !located[uid] && owned[our.Spec.ProviderID] == our.UID {
			// A list of the old system's that lacks it must not pass for the end of the instance.
			p.trouble("instance %s of Machine %s is there, and is not found by what the old system left at the cloud",
				our.Spec.ProviderID, our.Name)
		}
	}
	untraced, err := p.clearNodes(ctx, all, made)
	if err != nil {
		return err
	}
	if left > 0 || untraced > 0 || p.counted > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationRemoving)
}

// ownInstances returns the UID of the Machine whose tags each instance of this installation carries.
func (p *pass) ownInstances(ctx context.Context, mine *ours) (map[string]types.UID, error) {
	owned := map[string]types.UID{}
	for _, class := range madeOf(mine, mine.classes) {
		resolved, err := p.classOf(ctx, class)
		if err != nil {
			return nil, err
		}
		for token := ""; ; {
			page, err := p.Cloud.List(ctx, provider.ListRequest{Class: resolved, ClusterID: p.ClusterID(), Continue: token})
			if err != nil {
				return nil, fmt.Errorf("list the instances of class %s: %w", class.Name, err)
			}
			for _, in := range page.Instances {
				if in.ClusterID == p.ClusterID() {
					owned[in.ProviderID] = in.MachineUID
				}
			}
			if token = page.Continue; token == "" {
				break
			}
		}
	}
	return owned, nil
}

// classOf returns a class with its credentials, as drivers take it.
func (p *pass) classOf(ctx context.Context, class *v1beta1.MachineClass) (provider.Class, error) {
	resolver := resolve.Resolver{Classes: p.Control, Secrets: p.Control}
	credentials, err := resolver.Credentials(ctx, class.Namespace, class.Spec.CredentialsRef)
	if err != nil {
		return provider.Class{}, fmt.Errorf("read the credentials of class %s: %w", class.Name, err)
	}
	resolved := resolve.OfClass(class)
	resolved.Credentials = credentials
	return resolved.Class(), nil
}

func (p *pass) release(ctx context.Context, m *machine, our *v1beta1.Machine) error {
	if m.class.object == nil {
		return fmt.Errorf("its class could not be converted")
	}
	class, err := p.classOf(ctx, m.class.object)
	if err != nil {
		return err
	}
	return p.Cloud.Release(ctx, provider.ReleaseRequest{Machine: identity(our), Class: class, ClusterID: p.ClusterID(),
		ProviderID: m.instance.ProviderID, Scope: scopeOf(our), Source: p.system.Group()})
}

func identity(m *v1beta1.Machine) provider.Machine {
	return provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

func scopeOf(m *v1beta1.Machine) string {
	if m.Status.Instance == nil {
		return ""
	}
	return m.Status.Instance.Scope
}

// clearNodes removes what the old system left on the Nodes of the plan, and returns on how many there was something.
func (p *pass) clearNodes(ctx context.Context, all nodes, made *plan) (found int, err error) {
	traces := p.system.NodeTraces()
	var traced []*corev1.Node
	for _, m := range made.machines {
		if same := all.byProviderID[m.instance.ProviderID]; len(same) == 1 && hasTraces(same[0], traces) {
			traced = append(traced, same[0])
		}
	}
	return len(traced), each(ctx, p.Parallel, traced, func(ctx context.Context, node *corev1.Node) error {
		// With the resource version, because lists are written as a whole.
		changed := node.DeepCopy()
		removeTraces(changed, traces)
		patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
		if err := p.Target.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the old system's keys from node %s: %w", node.Name, err)
		}
		return nil
	})
}

func hasTraces(node *corev1.Node, traces source.NodeTraces) bool {
	changed := node.DeepCopy()
	return removeTraces(changed, traces)
}

// removeTraces reports whether there was something to remove.
func removeTraces(node *corev1.Node, traces source.NodeTraces) bool {
	size := func() int {
		return len(node.Labels) + len(node.Annotations) + len(node.Finalizers) + len(node.Spec.Taints) +
			len(node.OwnerReferences)
	}
	before := size()
	removeKeys(node.Labels, traces.Labels)
	removeKeys(node.Annotations, traces.Annotations)
	for mark, key := range traces.Marked {
		if has(node.Annotations, mark) {
			removeKeys(node.Annotations, []string{key, mark})
		}
	}
	node.Finalizers = slices.DeleteFunc(node.Finalizers, func(f string) bool { return names(traces.Finalizers, f) })
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return names(traces.Taints, t.Key)
	})
	node.OwnerReferences = slices.DeleteFunc(node.OwnerReferences, func(o metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		return slices.Contains(traces.OwnerGroups, group)
	})
	return size() != before
}

func removeKeys(from map[string]string, keys []string) {
	for key := range from {
		if names(keys, key) {
			delete(from, key)
		}
	}
}

// names reports whether the keys have this one, or all of its domain by a key that ends in a slash.
func names(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		return k == key || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
	})
}

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
	secrets, err := p.secretsOfMigration(ctx)
	if err != nil {
		return false, err
	}
	if frozen += len(secrets); frozen > 0 {
		p.again = soon // The next pass finds out whether all is done.
	}
	return frozen == 0, each(ctx, p.Parallel, secrets, p.thawOne)
}

// secretsOfMigration are the Secrets that the migration made.
func (p *pass) secretsOfMigration(ctx context.Context) ([]client.Object, error) {
	list := &corev1.SecretList{}
	if err := p.Control.List(ctx, list, client.InNamespace(p.migration.Namespace),
		client.MatchingLabels{v1beta1.LabelMigration: p.migration.Name}); err != nil {
		return nil, fmt.Errorf("list the Secrets of the migration: %w", err)
	}
	var all []client.Object
	for i := range list.Items {
		all = append(all, &list.Items[i])
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
	later := afterOf(object)
	if later.Delete && object.GetDeletionTimestamp().IsZero() {
		uid := object.GetUID()
		if err := p.Control.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s, whose deletion was asked for before: %w", kindOf(object), object.GetName(), err)
		}
	}
	labels := map[string]any{v1beta1.LabelMigration: nil}
	annotations := map[string]any{v1beta1.AnnotationAfterMigration: nil}
	for key, value := range later.Annotations {
		annotations[key] = value
	}
	spec := map[string]any{}
	switch object.(type) {
	case *v1beta1.MachineHealthCheck:
		if later.Remediation != "" {
			spec["remediation"] = map[string]any{"type": later.Remediation}
		}
	case *v1beta1.MachineClass:
		spec["adoption"] = v1beta1.AdoptionForbid
	case *v1beta1.MachineSet, *v1beta1.MachineDeployment:
		labels[v1beta1.LabelFreeze] = nil
		if later.Replicas != nil {
			spec["replicas"] = *later.Replicas
		}
	}
	patch := map[string]any{"metadata": map[string]any{"uid": object.GetUID(), "labels": labels, "annotations": annotations}}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
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
			p.since(p.migration, false)
			p.condition(v1beta1.ConditionPlanned, true, v1beta1.ReasonPlanReady, fmt.Sprintf(
				"The definitions of the old kinds stay: %s in namespace %q is not of this migration.", nameOf(objects[0]),
				objects[0].GetNamespace()))
			return true, nil
		}
	}
	if p.since(p.migration, true) < p.Timing.EmptyFor {
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
