package standin

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

func (p *pass) machine(ctx context.Context, m *unstructured.Unstructured) error {
	if m.GetDeletionTimestamp() != nil {
		return p.deleteMachine(ctx, m)
	}
	if err := p.update(ctx, m, func() {
		for _, finalizer := range p.finalizers {
			controllerutil.AddFinalizer(m, finalizer)
		}
	}); err != nil {
		return err
	}
	in, exists := p.instances[m.GetName()]
	if !exists {
		return p.createInstance(ctx, Request{Machine: m.GetName(), UID: m.GetUID(), Description: p.description(m)})
	}
	if p.identify != nil {
		if err := p.update(ctx, m, func() { p.identify(m, in) }); err != nil {
			return err
		}
	}
	node := p.nodes[in.NodeName]
	if node == nil || !isReady(node) {
		p.pending++
		return nil
	}
	if err := p.update(ctx, node, func() { p.applyToNode(m, node) }); err != nil {
		return err
	}
	return p.setStatus(ctx, m, p.status(node))
}

// applyToNode marks a Node as the Node of a Machine, and adds the labels, annotations and taints of the Machine.
func (p *pass) applyToNode(m *unstructured.Unstructured, node *corev1.Node) {
	p.mark(m, node)
	if p.nodeFinalizer != "" {
		controllerutil.AddFinalizer(node, p.nodeFinalizer)
	}
	meta, _, _ := unstructured.NestedMap(m.Object, p.nodeMeta...)
	labels, _, _ := unstructured.NestedStringMap(meta, "labels")
	for key, value := range labels {
		metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
	}
	annotations, _, _ := unstructured.NestedStringMap(meta, "annotations")
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	}
	taints, _, _ := unstructured.NestedSlice(m.Object, p.taints...)
	for _, raw := range taints {
		fields, _ := raw.(map[string]any)
		text := func(name string) string { value, _ := fields[name].(string); return value }
		taint := corev1.Taint{Key: text("key"), Value: text("value"), Effect: corev1.TaintEffect(text("effect"))}
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
}

func (p *pass) createInstance(ctx context.Context, r Request) error {
	return p.change("create", "instance", r.Machine, func() error { return p.Cloud.Create(ctx, r) })
}

// deleteMachine deletes the instance, then the Node, and then removes the finalizers of the Machine.
func (p *pass) deleteMachine(ctx context.Context, m *unstructured.Unstructured) error {
	p.pending++
	if in, exists := p.instances[m.GetName()]; exists {
		return p.deleteInstance(ctx, in)
	}
	if node := p.nodes[m.GetName()]; node != nil {
		if err := p.update(ctx, node, func() { controllerutil.RemoveFinalizer(node, p.nodeFinalizer) }); err != nil {
			return err
		}
		if err := p.remove(ctx, "Node", node); err != nil {
			return err
		}
	}
	return p.update(ctx, m, func() {
		for _, finalizer := range p.finalizers {
			controllerutil.RemoveFinalizer(m, finalizer)
		}
	})
}

func (p *pass) deleteInstance(ctx context.Context, in Instance) error {
	p.pending++
	if in.Deleting {
		return nil
	}
	return p.change("delete", "instance", in.ID, func() error { return p.Cloud.Delete(ctx, in.ID) })
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
