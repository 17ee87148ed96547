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
// list is an empty list of the kind, whose objects are *T. It gets the resource version of a live list.
//
// From a process's cache, the objects are returned without a copy, which saves memory if they are a whole fleet. The
// options may then select a namespace and one field, and disable waiting for the process's own writes.
func Shared[T any](ctx context.Context, from client.Reader, list client.ObjectList,
	o ...client.ListOption) ([]*T, error) {
	var objects []any
	var err error
	if cached, ok := from.(interface {
		Shared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error)
	}); ok {
		objects, err = cached.Shared(ctx, list, o...)
	} else if err = from.List(ctx, list, append(slices.Clip(o), client.UnsafeDisableDeepCopy)...); err == nil {
		err = meta.EachListItem(list, func(object runtime.Object) error {
			objects = append(objects, object)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	shared := make([]*T, len(objects))
	for i, object := range objects {
		t, ok := object.(*T)
		if !ok {
			return nil, fmt.Errorf("list %T contains a %T", list, object)
		}
		shared[i] = t
	}
	return shared, nil
}
