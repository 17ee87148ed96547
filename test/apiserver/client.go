package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

type request struct {
	actor  string
	verb   string
	sub    string
	dryRun bool
}

func (r request) name() string {
	if r.sub == "" {
		return r.verb
	}
	return r.verb + "/" + r.sub
}

type liveClient struct {
	server *Server
	actor  string
}

// Client returns a client for an actor. Each Change contains the actor's name.
func (s *Server) Client(actor string) client.Client { return &liveClient{server: s, actor: actor} }

func (c *liveClient) Scheme() *runtime.Scheme     { return c.server.scheme }
func (c *liveClient) RESTMapper() meta.RESTMapper { return c.server.registry.mapper }

func (c *liveClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.server.scheme)
}

func (c *liveClient) IsObjectNamespaced(o runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(o, c.server.scheme, c.server.registry.mapper)
}

func (c *liveClient) request(verb, sub string, dryRun []string) request {
	return request{actor: c.actor, verb: verb, sub: sub, dryRun: len(dryRun) > 0}
}

func (c *liveClient) target(ctx context.Context, o client.Object) (*kind, *record, error) {
	k, err := c.kindOf(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	key := client.ObjectKeyFromObject(o)
	r, err := c.stored(k, key)
	return k, r, err
}

func (c *liveClient) kindOf(ctx context.Context, o runtime.Object) (*kind, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k, err := c.server.registry.kindOf(o)
	if err == nil && !c.server.served(k) {
		return nil, &meta.NoKindMatchError{GroupKind: k.gvk.GroupKind(), SearchedVersions: []string{k.gvk.Version}}
	}
	return k, err
}

func (c *liveClient) stored(k *kind, key client.ObjectKey) (*record, error) {
	if !k.namespaced {
		key.Namespace = ""
	} else if key.Namespace == "" {
		// A request without a namespace has no valid URL.
		return nil, fmt.Errorf("an empty namespace may not be set when a resource name is provided")
	}
	if key.Name == "" {
		return nil, fmt.Errorf("resource name may not be empty")
	}
	if r := c.server.get(k, key); r != nil {
		return r, nil
	}
	return nil, apierrors.NewNotFound(k.resource(), key.Name)
}

func (c *liveClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	k, err := c.kindOf(ctx, into)
	if err != nil {
		return err
	}
	r, err := c.stored(k, key)
	if err != nil {
		return err
	}
	return c.answer(k, r, into)
}

func (c *liveClient) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	k, err := c.kindOf(ctx, o)
	if err != nil {
		return err
	}
	if _, ok := o.(*metav1.PartialObjectMetadata); ok {
		return fmt.Errorf("cannot create using only metadata")
	}
	if k.namespaced && o.GetNamespace() == "" {
		return fmt.Errorf("an empty namespace may not be set during creation")
	}
	var opts client.CreateOptions
	opts.ApplyOptions(options)
	r, err := c.server.create(k, c.request("create", "", opts.DryRun), o)
	if err != nil {
		return err
	}
	return c.answer(k, r, o)
}

func (c *liveClient) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if _, ok := o.(*metav1.PartialObjectMetadata); ok {
		return fmt.Errorf("cannot update using only metadata -- did you mean to patch?")
	}
	var opts client.UpdateOptions
	opts.ApplyOptions(options)
	return c.update(ctx, o, c.request("update", "", opts.DryRun))
}

func (c *liveClient) update(ctx context.Context, o client.Object, req request) error {
	k, old, err := c.target(ctx, o)
	if apierrors.IsNotFound(err) && k.strategy.allowsCreateOnUpdate() {
		if o.GetUID() != "" {
			return conflict(k, o.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: ",
				o.GetUID()))
		}
		return c.Create(ctx, o)
	}
	if err != nil {
		return err
	}
	meta, body, err := k.decode(o)
	if err != nil {
		return err
	}
	if meta.UID != "" && meta.UID != old.meta.UID {
		return conflict(k, old.key.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v",
			meta.UID, old.meta.UID))
	}
	r, err := c.server.update(k, req, old, meta, body, old.managed)
	if err != nil {
		return err
	}
	defer restoreKind(o, o.GetObjectKind().GroupVersionKind())
	return c.answer(k, r, o)
}

func (c *liveClient) Patch(ctx context.Context, o client.Object, patch client.Patch,
	options ...client.PatchOption) error {
	var opts client.PatchOptions
	opts.ApplyOptions(options)
	if patch.Type() == types.ApplyPatchType {
		return c.applyPatch(ctx, o, patch, opts)
	}
	return c.patch(ctx, o, o, patch, c.request("patch", "", opts.DryRun))
}

func (c *liveClient) patch(ctx context.Context, o, body client.Object, patch client.Patch, req request) error {
	k, err := c.kindOf(ctx, o)
	if err != nil {
		return err
	}
	sent := sentPatch{kind: patch.Type()}
	var ok bool
	if sent.content, ok = k.mergePatchOf(patch, body); !ok {
		if sent.data, err = patch.Data(body); err != nil {
			return err
		}
	}
	r, err := c.server.patch(k, req, client.ObjectKeyFromObject(o), sent)
	if err != nil {
		return err
	}
	defer restoreKind(body, body.GetObjectKind().GroupVersionKind())
	return c.answer(k, r, body)
}

func (c *liveClient) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	k, old, err := c.target(ctx, o)
	if err != nil {
		return err
	}
	var opts client.DeleteOptions
	opts.ApplyOptions(options)
	return c.server.delete(k, c.request("delete", "", opts.DryRun), old, opts.AsDeleteOptions())
}

func (c *liveClient) DeleteAllOf(ctx context.Context, o client.Object, options ...client.DeleteAllOfOption) error {
	k, err := c.kindOf(ctx, o)
	if err != nil {
		return err
	}
	var opts client.DeleteAllOfOptions
	opts.ApplyOptions(options)
	if k.namespaced && opts.Namespace == "" {
		return apierrors.NewMethodNotSupported(k.resource(), "delete")
	}
	records, err := c.server.list(k, &opts.ListOptions)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := c.server.delete(k, c.request("deletecollection", "", opts.DryRun), r, opts.AsDeleteOptions()); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// restoreKind restores the apiVersion and kind of the caller's object after a write, as the real client does.
func restoreKind(o client.Object, gvk schema.GroupVersionKind) {
	if gvk != (schema.GroupVersionKind{}) {
		o.GetObjectKind().SetGroupVersionKind(gvk)
	}
}
