package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	// ErrNotSynced is returned for a cached kind until the cache has been filled for the first time. The cluster has
	// not been reachable since this process started.
	ErrNotSynced = errors.New("the cache is not filled yet")
	// ErrBehind is returned by a cached read if the cache still lacks a write of this process after the read timeout.
	ErrBehind = errors.New("the cache does not contain this process's own writes yet")
)

// cachedClient reads and writes cached kinds so that each read includes the process's earlier writes. cachedClient
// writes other kinds with the live client.
type cachedClient struct {
	client.Client
	consistent client.Client
	cache      *declaredCache
	kinds      kinds
	synced     func() bool
	timeout    time.Duration
}

func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	o ...client.GetOption) error {
	f, err := c.readable(object)
	if err != nil {
		return fmt.Errorf("get %s: %w", key, err)
	}
	return c.readWithTimeout(ctx, f, func(ctx context.Context) error { return c.consistent.Get(ctx, key, object, o...) })
}

func (c *cachedClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	f, err := c.readable(list)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return c.readWithTimeout(ctx, f, func(ctx context.Context) error { return c.consistent.List(ctx, list, o...) })
}

const impossibleNamespace = "/"

// ListShared returns pointers to the cached objects, for index.ListShared. Callers must not change these objects.
//
// List would copy 700 bytes of each Machine, even without deep copies. To replace a set of 1,000 Machines, about
// 2,000 passes read all these Machines. List would double the memory that the manager and the provider allocate
// (TestDeparturesFromTheLibrariesAreCheaper).
func (c *cachedClient) ListShared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error) {
	options := (&client.ListOptions{}).ApplyOptions(o)
	// This call lists no objects. The call only waits until the cache contains this process's own writes.
	if err := c.List(ctx, list, &client.ListOptions{Namespace: impossibleNamespace,
		DisableReadYourWritesConsistency: options.DisableReadYourWritesConsistency}); err != nil {
		return nil, err
	}
	return c.cache.ListShared(ctx, list, o...)
}

// readable returns an error if a kind is not cached. If readable read such a kind from the API server, the caller
// would not notice the cost of the request.
func (c *cachedClient) readable(object runtime.Object) (form, error) {
	f, err := c.kinds.check(object)
	if err == nil && !c.synced() {
		err = fmt.Errorf("%w: %s", ErrNotSynced, f)
	}
	return f, err
}

func (c *cachedClient) readWithTimeout(ctx context.Context, f form, read func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, ErrBehind)
	defer cancel()
	err := read(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), ErrBehind) {
		return fmt.Errorf("%w: %s, after %s: %w", ErrBehind, f, c.timeout, err)
	}
	return err
}

// writer returns the client that must write an object. All writes of a cached kind must use the client and the Go type
// of its reads. A read does not wait for a write that used another client or Go type.
func (c *cachedClient) writer(object runtime.Object) (client.Client, error) {
	f, err := formOf(object, c.kinds.scheme)
	if err != nil {
		return nil, err
	}
	return c.writerOf(f)
}

func (c *cachedClient) writerOf(f form) (client.Client, error) {
	switch cached := c.kinds.declared[f.GroupVersionKind]; {
	case cached == "" || cached == asMetadata && f.of == asTyped:
		// If only the metadata of a kind is cached, the cache serves only to trigger controllers. All reads of this
		// kind are live.
		return c.Client, nil
	case cached != f.of:
		return nil, fmt.Errorf("%s is cached as %s: the next read would not wait for a write of %s", f.Kind, cached, f)
	case !c.synced():
		return nil, fmt.Errorf("%w: %s", ErrNotSynced, f)
	default:
		return c.consistent, nil
	}
}

func (c *cachedClient) Create(ctx context.Context, object client.Object, o ...client.CreateOption) error {
	w, err := c.writer(object)
	if err != nil {
		return fmt.Errorf("create %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return w.Create(ctx, object, o...)
}

func (c *cachedClient) Update(ctx context.Context, object client.Object, o ...client.UpdateOption) error {
	w, err := c.writer(object)
	if err != nil {
		return fmt.Errorf("update %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return w.Update(ctx, object, o...)
}

func (c *cachedClient) Patch(ctx context.Context, object client.Object, patch client.Patch,
	o ...client.PatchOption) error {
	w, err := c.writer(object)
	if err != nil {
		return fmt.Errorf("patch %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return w.Patch(ctx, object, patch, o...)
}

func (c *cachedClient) Delete(ctx context.Context, object client.Object, o ...client.DeleteOption) error {
	w, err := c.writer(object)
	if err != nil {
		return fmt.Errorf("delete %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return w.Delete(ctx, object, o...)
}

func (c *cachedClient) DeleteAllOf(ctx context.Context, object client.Object, o ...client.DeleteAllOfOption) error {
	w, err := c.writer(object)
	if err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	return w.DeleteAllOf(ctx, object, o...)
}

func (c *cachedClient) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	o ...client.ApplyOption) error {
	w, err := c.applier(configuration)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return w.Apply(ctx, configuration, o...)
}

// applier returns the client that must apply a configuration. Generated apply configurations are typed. An apply
// configuration that was made from an unstructured object implements runtime.Object.
func (c *cachedClient) applier(configuration runtime.ApplyConfiguration) (client.Client, error) {
	if object, ok := configuration.(runtime.Object); ok {
		return c.writerOf(form{object.GetObjectKind().GroupVersionKind(), asUnstructured})
	}
	named, ok := configuration.(interface {
		GetKind() *string
		GetAPIVersion() *string
	})
	if !ok || named.GetKind() == nil || named.GetAPIVersion() == nil {
		return nil, fmt.Errorf("%T has no kind", configuration)
	}
	return c.writerOf(form{schema.FromAPIVersionAndKind(*named.GetAPIVersion(), *named.GetKind()), asTyped})
}

func (c *cachedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *cachedClient) SubResource(name string) client.SubResourceClient {
	return &cachedSubResource{SubResourceClient: c.Client.SubResource(name), name: name, parent: c}
}

// cachedSubResource updates and patches subresources like cachedClient. cachedSubResource reads and creates
// subresources with the live client.
type cachedSubResource struct {
	client.SubResourceClient
	name   string
	parent *cachedClient
}

func (s *cachedSubResource) Update(ctx context.Context, object client.Object,
	o ...client.SubResourceUpdateOption) error {
	w, err := s.parent.writer(object)
	if err != nil {
		return fmt.Errorf("update %s of %s: %w", s.name, client.ObjectKeyFromObject(object), err)
	}
	return w.SubResource(s.name).Update(ctx, object, o...)
}

func (s *cachedSubResource) Patch(ctx context.Context, object client.Object, patch client.Patch,
	o ...client.SubResourcePatchOption) error {
	w, err := s.parent.writer(object)
	if err != nil {
		return fmt.Errorf("patch %s of %s: %w", s.name, client.ObjectKeyFromObject(object), err)
	}
	return w.SubResource(s.name).Patch(ctx, object, patch, o...)
}

func (s *cachedSubResource) Apply(ctx context.Context, configuration runtime.ApplyConfiguration,
	o ...client.SubResourceApplyOption) error {
	w, err := s.parent.applier(configuration)
	if err != nil {
		return fmt.Errorf("apply %s: %w", s.name, err)
	}
	return w.SubResource(s.name).Apply(ctx, configuration, o...)
}
