package standin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type controller struct {
	Options
	group
	kube     client.Client
	leases   coordinationv1.LeasesGetter
	identity string
	// The controller holds this lock while it leads. After the controller has lost a Lease, another pass can begin
	// only when the last pass has ended.
	leading sync.Mutex
}

// A pass reconciles each object once, from the state at the beginning of the pass.
type pass struct {
	*controller
	objects          map[string][]*unstructured.Unstructured // The keys are kinds.
	instances        map[string]Instance                     // The keys are the names of Machines.
	nodes            map[string]*corev1.Node
	changes, pending int
}

// lead repeats passes over all machines until ctx is done. When nothing is left to do, lead logs "settled".
func (c *controller) lead(ctx context.Context) {
	c.leading.Lock()
	defer c.leading.Unlock()
	settled := false
	for {
		p := &pass{controller: c}
		err := p.run(ctx)
		if err != nil && ctx.Err() == nil {
			c.Log.Error("pass failed", "err", err)
		}
		done := err == nil && p.changes == 0 && p.pending == 0
		if done && !settled {
			c.Log.Info("settled", "machines", len(p.objects[machines]))
		}
		settled = done
		if !pause(ctx) {
			return
		}
	}
}

func (p *pass) run(ctx context.Context) error {
	if err := p.read(ctx); err != nil {
		return err
	}
	if p.reconcile != nil {
		return p.reconcile(p, ctx)
	}
	var errs []error
	for _, reconciler := range []struct {
		kind      string
		reconcile func(context.Context, *unstructured.Unstructured) error
	}{{classes, p.class}, {deployments, p.deployment}, {sets, p.set}, {machines, p.machine}} {
		for _, object := range p.objects[reconciler.kind] {
			if err := reconciler.reconcile(ctx, object); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", reconciler.kind, object.GetName(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *pass) read(ctx context.Context) error {
	p.objects = map[string][]*unstructured.Unstructured{}
	for _, kind := range append(slices.Clone(p.parents), machines) {
		objects, err := p.list(ctx, p.kind(kind))
		if err != nil {
			return err
		}
		p.objects[kind] = objects
	}
	p.nodes = map[string]*corev1.Node{}
	nodes := &corev1.NodeList{}
	if err := p.kube.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		p.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	p.instances = map[string]Instance{}
	instances, err := p.Cloud.Instances(ctx)
	for _, in := range instances {
		p.instances[in.Machine] = in
	}
	return err
}

func (p *pass) list(ctx context.Context, kind schema.GroupVersionKind) ([]*unstructured.Unstructured, error) {
	found, err := list(ctx, p.kube, kind, client.InNamespace(p.Namespace))
	all := make([]*unstructured.Unstructured, len(found))
	for i := range found {
		all[i] = &found[i]
	}
	return all, err
}

func (c *controller) kind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.Group, Version: c.version, Kind: kind}
}

func (p *pass) change(verb, kind, name string, do func() error) error {
	p.changes++
	err := do()
	if err != nil {
		p.Log.Info("change", "verb", verb, "kind", kind, "name", name, "err", err)
		return fmt.Errorf("%s %s: %w", verb, kind, err)
	}
	p.Log.Info("change", "verb", verb, "kind", kind, "name", name)
	return nil
}

func (p *pass) create(ctx context.Context, object *unstructured.Unstructured) error {
	return p.change("create", object.GetKind(), cmp.Or(object.GetName(), object.GetGenerateName()+"*"), func() error {
		return p.kube.Create(ctx, object)
	})
}

func (p *pass) update(ctx context.Context, object client.Object, edit func()) error {
	before := object.DeepCopyObject().(client.Object)
	edit()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return p.patch("update", object, before, func() error { return p.kube.Patch(ctx, object, patch) })
}

func (p *pass) setStatus(ctx context.Context, object *unstructured.Unstructured, fields map[string]any) error {
	before := object.DeepCopyObject().(client.Object)
	for name, value := range fields {
		if err := unstructured.SetNestedField(object.Object, value, "status", name); err != nil {
			return err
		}
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return p.patch("update status", object, before, func() error {
		if p.noStatusSubresource {
			return p.kube.Patch(ctx, object, patch)
		}
		return p.kube.Status().Patch(ctx, object, patch)
	})
}

func (p *pass) patch(verb string, object, before client.Object, do func() error) error {
	difference, err := client.MergeFrom(before).Data(object)
	if err != nil || string(difference) == "{}" {
		return err
	}
	kind, err := p.kube.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	return p.change(verb, kind.Kind, object.GetName(), do)
}

func (p *pass) remove(ctx context.Context, kind string, object client.Object) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	return p.change("delete", kind, object.GetName(), func() error {
		return client.IgnoreNotFound(p.kube.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())}))
	})
}
