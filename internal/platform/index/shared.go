package index

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared returns the objects that a list would contain. They must not be changed, because other readers share them.
// list is an empty list of the kind, whose objects are *T.
//
// From a process's cache, the objects are returned without a copy, which saves memory if they are a whole fleet. The
// options may then select a namespace and one field, and disable waiting for the process's own writes. From a process's
// live client, objects that the cache contains in the same version are the cached ones, and list gets the resource
// version.
func Shared[T any](ctx context.Context, from client.Reader, list client.ObjectList,
	o ...client.ListOption) ([]*T, error) {
	var shared []*T
	add := func(object any) error {
		t, ok := object.(*T)
		if !ok {
			return fmt.Errorf("list %T contains a %T", list, object)
		}
		shared = append(shared, t)
		return nil
	}
	cached, ok := from.(interface {
		Shared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error)
	})
	if !ok {
		if err := from.List(ctx, list, append(slices.Clip(o), client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, err
		}
		return shared, meta.EachListItem(list, func(object runtime.Object) error { return add(object) })
	}
	objects, err := cached.Shared(ctx, list, o...)
	if err != nil {
		return nil, err
	}
	shared = make([]*T, 0, len(objects))
	for _, object := range objects {
		if err := add(object); err != nil {
			return nil, err
		}
	}
	return shared, nil
}

// SharedOne returns the object with a name, or nil if it does not exist. The object must not be changed. kind is any
// object of its kind, and is not changed either. From a process's cache, the object is returned without a copy and
// without waiting for the process's own writes.
func SharedOne[T any, P interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, kind P, key client.ObjectKey) (P, error) {
	cached, ok := from.(interface {
		SharedOne(ctx context.Context, kind client.Object, key client.ObjectKey) (any, error)
	})
	if !ok {
		object := P(new(T))
		err := from.Get(ctx, key, object, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		if err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return object, nil
	}
	object, err := cached.SharedOne(ctx, kind, key)
	if object == nil || err != nil {
		return nil, err
	}
	if p, ok := object.(P); ok {
		return p, nil
	}
	return nil, fmt.Errorf("the cache returned a %T instead of a %T", object, kind)
}
