package index

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared returns the objects that a list would have, which must not be changed: others have them too. list is an
// empty one that tells the kind, whose objects are *T. From a process's cache they come without a copy, which counts
// where they are a whole fleet; options may then be a namespace, one field, and not to wait for own writes. From its
// live client, which gives list the resource version, those that the cache has in the same version are the cache's
// own.
func Shared[T any](ctx context.Context, from client.Reader, list client.ObjectList,
	o ...client.ListOption) ([]*T, error) {
	var shared []*T
	add := func(object any) error {
		t, ok := object.(*T)
		if !ok {
			return fmt.Errorf("a %T has a %T in it", list, object)
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

// SharedOne returns the object of that name, which must not be changed, and nil where there is none. kind is any object
// of its kind, and is not changed. From a process's cache the object comes without a copy, and without waiting for own
// writes.
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
	return nil, fmt.Errorf("the cache has a %T where a %T was asked for", object, kind)
}
