package simulation

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// liveClient is the connection of a process to an API server. Each request of this client is an effect, so faults can
// happen at each request.
type liveClient struct {
	client.Client
	cache   *cache
	process *Process
	wrote   func(o client.Object)
}

func (p *Process) dial(to *cache, actor string) *liveClient {
	c := &liveClient{Client: p.world.reach(to.server, actor), cache: to, process: p}
	p.connections = append(p.connections, c)
	return c
}

func (c *liveClient) effect(verb string, o runtime.Object, key client.ObjectKey, reads bool) Effect {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		gvk.Kind = err.Error()
	}
	return Effect{Verb: verb, Kind: gvk.Kind, Name: key.String(), Reads: reads}
}

// write sends a write. If the response is lost, the caller's object stays the same, and the process does not learn the
// new revision.
func (c *liveClient) write(verb string, o client.Object, f func(client.Object) error) error {
	return c.writeEffect(c.effect(verb, o, client.ObjectKeyFromObject(o), false), o, f)
}

func (c *liveClient) writeEffect(e Effect, o client.Object, f func(client.Object) error) error {
	answer := o.DeepCopyObject().(client.Object)
	err := c.process.do(e, func(bool) error { return f(answer) })
	if err != nil {
		return err
	}
	if c.wrote != nil {
		c.wrote(answer)
	}
	return copyInto(answer, o)
}

// Get implements client.Client.
func (c *liveClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.process.do(c.effect("get", o, key, true), func(bool) error { return c.Client.Get(ctx, key, o, opts...) })
}

// List implements client.Client.
func (c *liveClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.process.do(c.effect("list", list, client.ObjectKey{}, true), func(bool) error {
		return c.Client.List(ctx, list, opts...)
	})
}

// Create implements client.Client.
func (c *liveClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.write("create", o, func(o client.Object) error { return c.Client.Create(ctx, o, opts...) })
}

// Update implements client.Client.
func (c *liveClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.write("update", o, func(o client.Object) error { return c.Client.Update(ctx, o, opts...) })
}

// Patch implements client.Client.
func (c *liveClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.write("patch", o, func(o client.Object) error { return c.Client.Patch(ctx, o, patch, opts...) })
}

// Delete implements client.Client.
func (c *liveClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	e := c.effect("delete", o, client.ObjectKeyFromObject(o), false)
	preconditions := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	e.HasPrecondition = preconditions != nil && preconditions.ResourceVersion != nil
	return c.writeEffect(e, o, func(o client.Object) error { return c.Client.Delete(ctx, o, opts...) })
}

// Status implements client.Client.
func (c *liveClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.Client.
func (c *liveClient) SubResource(name string) client.SubResourceClient {
	return &liveSubResource{c.Client.SubResource(name), c, name}
}

type liveSubResource struct {
	client.SubResourceClient
	parent *liveClient
	name   string
}

func (s *liveSubResource) api() client.SubResourceClient { return s.parent.Client.SubResource(s.name) }

// Get implements client.SubResourceClient.
func (s *liveSubResource) Get(ctx context.Context, o, sub client.Object, opts ...client.SubResourceGetOption) error {
	e := s.parent.effect("get "+s.name, o, client.ObjectKeyFromObject(o), true)
	return s.parent.process.do(e, func(bool) error { return s.api().Get(ctx, o, sub, opts...) })
}

// Create implements client.SubResourceClient.
func (s *liveSubResource) Create(ctx context.Context, o, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	return s.parent.write("create "+s.name, o, func(o client.Object) error { return s.api().Create(ctx, o, sub, opts...) })
}

// Update implements client.SubResourceClient.
func (s *liveSubResource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.parent.write("update "+s.name, o, func(o client.Object) error { return s.api().Update(ctx, o, opts...) })
}

// Patch implements client.SubResourceClient.
func (s *liveSubResource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	return s.parent.write("patch "+s.name, o, func(o client.Object) error { return s.api().Patch(ctx, o, patch, opts...) })
}

// cachedClient reads from the cache of a process, if the cache contains the kind. Like the client in package process,
// cachedClient waits for the process's own writes.
type cachedClient struct {
	*liveClient
	cache *cache
}

func newCachedClient(p *Process, c *cache, actor string) *cachedClient {
	live := p.dial(c, actor)
	live.wrote = func(o client.Object) {
		v, err := c.viewOf(o)
		if err != nil {
			return // The kind is not cached.
		}
		revision, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
		if err != nil || revision == 0 {
			revision = c.server.Revision() // The write was a deletion.
		}
		v.wrote(client.ObjectKeyFromObject(o), revision)
	}
	return &cachedClient{live, c}
}

// Get implements client.Client.
func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if c.process.dead {
		return errDead
	}
	v, err := c.cache.viewOf(o)
	if err != nil {
		return err
	}
	if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		if err := v.await(v.ownWrites[key]); err != nil {
			return err
		}
	}
	return c.cache.Get(ctx, key, o, opts...)
}

// List implements client.Client.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.process.dead {
		return errDead
	}
	v, err := c.cache.viewOf(list)
	if err != nil {
		return err
	}
	if !(&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		if err := v.await(v.lastOwnWrite); err != nil {
			return err
		}
	}
	return c.cache.List(ctx, list, opts...)
}
