package apiserver

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (c *liveClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *liveClient) SubResource(name string) client.SubResourceClient {
	return &subResource{client: c, name: name}
}

type subResource struct {
	client *liveClient
	name   string
}

func (r *subResource) notFound(k *kind) error {
	return apierrors.NewGenericServerResponse(404, "", k.resource(), "",
		"the server could not find the requested resource", 0, true)
}

func (r *subResource) Get(ctx context.Context, o, into client.Object, _ ...client.SubResourceGetOption) error {
	k, old, err := r.client.target(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case r.name == "scale" && k.strategy.hasScale():
		scale, ok := into.(*autoscalingv1.Scale)
		if !ok {
			return fmt.Errorf("read the scale of %s %s into a %T", k.gvk.Kind, old.key, into)
		}
		*scale = *scaleOf(old)
		return nil
	case k.strategy.hasSubresource(r.name):
		return r.client.answer(k, old, into)
	}
	return r.notFound(k)
}

func (r *subResource) Create(ctx context.Context, o, sub client.Object,
	options ...client.SubResourceCreateOption) error {
	k, old, err := r.client.target(ctx, o)
	if err != nil {
		return err
	}
	var opts client.SubResourceCreateOptions
	opts.ApplyOptions(options)
	eviction, ok := sub.(*policyv1.Eviction)
	if _, pod := old.object.(*corev1.Pod); !pod || r.name != "eviction" || !ok {
		return r.notFound(k)
	}
	return r.client.server.evict(k, r.client.request("create", r.name, opts.DryRun), old, eviction)
}

func (r *subResource) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	var opts client.SubResourceUpdateOptions
	opts.ApplyOptions(options)
	req := r.client.request("update", r.name, opts.DryRun)
	body := o
	if opts.SubResourceBody != nil {
		body = opts.SubResourceBody
	}
	k, err := r.client.kindOf(ctx, o)
	if err != nil {
		return err
	}
	if r.name == "scale" && k.strategy.hasScale() {
		scale, ok := body.(*autoscalingv1.Scale)
		if !ok {
			return fmt.Errorf("update the scale of %s %s with a %T", k.gvk.Kind, client.ObjectKeyFromObject(o), body)
		}
		old, err := r.client.stored(k, client.ObjectKeyFromObject(o))
		if err != nil {
			return err
		}
		return r.client.server.rescale(k, req, old, scale)
	}
	if !k.strategy.hasSubresource(r.name) {
		return r.notFound(k)
	}
	return r.client.update(ctx, body, req)
}

func (r *subResource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption) error {
	var opts client.SubResourcePatchOptions
	opts.ApplyOptions(options)
	req := r.client.request("patch", r.name, opts.DryRun)
	body := o
	if opts.SubResourceBody != nil {
		body = opts.SubResourceBody
	}
	k, err := r.client.kindOf(ctx, o)
	if err != nil {
		return err
	}
	if r.name == "scale" && k.strategy.hasScale() {
		return r.patchScale(k, req, o, body, patch)
	}
	if !k.strategy.hasSubresource(r.name) {
		if _, err := patch.Data(body); err != nil {
			return err
		}
		return r.notFound(k)
	}
	return r.client.patch(ctx, o, body, patch, req)
}

func (r *subResource) patchScale(k *kind, req request, o, body client.Object, patch client.Patch) error {
	old, err := r.client.stored(k, client.ObjectKeyFromObject(o))
	if err != nil {
		return err
	}
	data, err := patch.Data(body)
	if err != nil {
		return err
	}
	scale, err := patchedScale(scaleOf(old), patch.Type(), data)
	if err != nil {
		return err
	}
	if err := r.client.server.rescale(k, req, old, scale); err != nil {
		return err
	}
	if into, ok := body.(*autoscalingv1.Scale); ok {
		*into = *scale
	}
	return nil
}

func (r *subResource) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	options ...client.SubResourceApplyOption) error {
	var opts client.SubResourceApplyOptions
	opts.ApplyOpts(options)
	if opts.SubResourceBody != nil {
		configuration = opts.SubResourceBody
	}
	return r.client.apply(ctx, configuration, r.name, opts.ApplyOptions)
}
