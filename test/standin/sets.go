package standin

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const templateHash = "machine-template-hash"

// deployment scales the set for the current template to all replicas of the deployment, and all other sets to 0.
func (p *pass) deployment(ctx context.Context, d *unstructured.Unstructured) error {
	if d.GetDeletionTimestamp() != nil {
		return p.deleteParent(ctx, d, sets)
	}
	if err := p.update(ctx, d, func() { p.addMetadata(d) }); err != nil {
		return err
	}
	template, _, _ := unstructured.NestedMap(d.Object, "spec", "template")
	data, err := json.Marshal(template)
	if err != nil {
		return err
	}
	sum := fnv.New32a()
	sum.Write(data)
	hash := strconv.FormatUint(uint64(sum.Sum32()), 10)
	ready, found := int64(0), false
	for _, set := range p.owned(sets, d) {
		want := int64(0)
		if set.GetLabels()[templateHash] == hash {
			want, found = replicas(d), true
		}
		n, _, _ := unstructured.NestedInt64(set.Object, "status", "readyReplicas")
		ready += n
		err := p.update(ctx, set, func() { _ = unstructured.SetNestedField(set.Object, want, "spec", "replicas") })
		if err != nil {
			return err
		}
	}
	if !found {
		return p.create(ctx, p.newSet(d, template, hash))
	}
	return p.setStatus(ctx, d, map[string]any{"observedGeneration": d.GetGeneration(), "replicas": ready,
		"updatedReplicas": ready, "readyReplicas": ready, "availableReplicas": ready})
}

func (p *pass) addMetadata(o *unstructured.Unstructured) {
	if p.parentFinalizer != "" {
		controllerutil.AddFinalizer(o, p.parentFinalizer)
	}
	if p.revision != "" && o.GetKind() == deployments {
		_ = unstructured.SetNestedField(o.Object, "1", "metadata", "annotations", p.revision)
	}
}

func (p *pass) newSet(d *unstructured.Unstructured, template map[string]any, hash string) *unstructured.Unstructured {
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	labels[templateHash] = hash
	_ = unstructured.SetNestedStringMap(template, labels, "metadata", "labels")
	selector, _, _ := unstructured.NestedStringMap(d.Object, "spec", "selector", "matchLabels")
	selector[templateHash] = hash
	set := p.child(sets, d)
	set.SetName(d.GetName() + "-" + hash)
	set.SetLabels(labels)
	set.SetAnnotations(d.GetAnnotations())
	set.Object["spec"] = map[string]any{"replicas": replicas(d), "template": template}
	_ = unstructured.SetNestedStringMap(set.Object, selector, "spec", "selector", "matchLabels")
	return set
}

func (p *pass) set(ctx context.Context, s *unstructured.Unstructured) error {
	if s.GetDeletionTimestamp() != nil {
		return p.deleteParent(ctx, s, machines)
	}
	if err := p.update(ctx, s, func() { p.addMetadata(s) }); err != nil {
		return err
	}
	owned := slices.DeleteFunc(p.owned(machines, s), func(m *unstructured.Unstructured) bool {
		return m.GetDeletionTimestamp() != nil
	})
	for range replicas(s) - int64(len(owned)) {
		if err := p.create(ctx, p.newMachine(s)); err != nil {
			return err
		}
	}
	for _, surplus := range owned[min(int(replicas(s)), len(owned)):] {
		if err := p.remove(ctx, machines, surplus); err != nil {
			return err
		}
	}
	ready := int64(0)
	for _, m := range owned {
		if node := p.nodes[m.GetName()]; node != nil && isReady(node) {
			ready++
		}
	}
	return p.setStatus(ctx, s, map[string]any{"observedGeneration": s.GetGeneration(), "replicas": int64(len(owned)),
		"fullyLabeledReplicas": int64(len(owned)), "readyReplicas": ready, "availableReplicas": ready})
}

// deleteParent deletes the dependents of a deployment or set, and then removes its finalizer. If the finalizer belongs
// to the garbage collector, deleteParent does nothing, because the garbage collector deletes the dependents and removes
// the finalizer.
func (p *pass) deleteParent(ctx context.Context, o *unstructured.Unstructured, owns string) error {
	if p.parentFinalizer == metav1.FinalizerDeleteDependents {
		return nil
	}
	p.pending++
	owned := p.owned(owns, o)
	for _, child := range owned {
		if err := p.remove(ctx, owns, child); err != nil {
			return err
		}
	}
	if len(owned) > 0 {
		return nil
	}
	return p.update(ctx, o, func() { controllerutil.RemoveFinalizer(o, p.parentFinalizer) })
}

func (p *pass) newMachine(s *unstructured.Unstructured) *unstructured.Unstructured {
	template, _, _ := unstructured.NestedMap(s.Object, "spec", "template")
	m := p.child(machines, s)
	m.SetGenerateName(s.GetName() + "-")
	labels, _, _ := unstructured.NestedStringMap(template, "metadata", "labels")
	m.SetLabels(labels)
	m.SetFinalizers(p.finalizers)
	m.Object["spec"] = template["spec"]
	return m
}

func (p *pass) child(kind string, parent *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(p.kind(kind))
	o.SetNamespace(parent.GetNamespace())
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(parent, parent.GroupVersionKind())})
	return o
}

func (p *pass) owned(kind string, parent *unstructured.Unstructured) (all []*unstructured.Unstructured) {
	for _, o := range p.objects[kind] {
		if metav1.IsControlledBy(o, parent) {
			all = append(all, o)
		}
	}
	return all
}

func replicas(o *unstructured.Unstructured) int64 {
	n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		return 1
	}
	return n
}
