package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type sharedClient struct {
	client.Client
	live  *liveClient
	front *Front
}

// Client returns a client without a cache that is safe for concurrent use.
func (f *Front) Client(actor string) client.WithWatch {
	live := &liveClient{server: f.server, actor: actor}
	return &sharedClient{Client: live, live: live, front: f}
}

func (c *sharedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.front.locked(func() error { return c.live.Get(ctx, key, o, opts...) })
}

func (c *sharedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.front.locked(func() error { return c.live.List(ctx, list, opts...) })
}

func (c *sharedClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.front.locked(func() error { return c.live.Create(ctx, o, opts...) })
}

func (c *sharedClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.front.locked(func() error { return c.live.Update(ctx, o, opts...) })
}

func (c *sharedClient) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	return c.front.locked(func() error { return c.live.Patch(ctx, o, patch, opts...) })
}

func (c *sharedClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return c.front.locked(func() error { return c.live.Apply(ctx, o, opts...) })
}

func (c *sharedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.front.locked(func() error { return c.live.Delete(ctx, o, opts...) })
}

func (c *sharedClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return c.front.locked(func() error { return c.live.DeleteAllOf(ctx, o, opts...) })
}

func (c *sharedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *sharedClient) SubResource(name string) client.SubResourceClient {
	return &sharedSubResource{front: c.front, live: c.live.SubResource(name)}
}

type sharedSubResource struct {
	front *Front
	live  client.SubResourceClient
}

func (c *sharedSubResource) Get(ctx context.Context, o, into client.Object, opts ...client.SubResourceGetOption) error {
	return c.front.locked(func() error { return c.live.Get(ctx, o, into, opts...) })
}

func (c *sharedSubResource) Create(ctx context.Context, o, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	return c.front.locked(func() error { return c.live.Create(ctx, o, sub, opts...) })
}

func (c *sharedSubResource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return c.front.locked(func() error { return c.live.Update(ctx, o, opts...) })
}

func (c *sharedSubResource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	return c.front.locked(func() error { return c.live.Patch(ctx, o, patch, opts...) })
}

func (c *sharedSubResource) Apply(ctx context.Context, o runtime.ApplyConfiguration,
	opts ...client.SubResourceApplyOption) error {
	return c.front.locked(func() error { return c.live.Apply(ctx, o, opts...) })
}
