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
