package index

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ListShared returns a list of objects. If the reader is the cache of a process, ListShared does not copy the
// objects. Sharing the objects saves memory for a list of a whole fleet. Do not change the returned objects, because
// other readers share them.
//
// Pass an empty list of the kind in the parameter list, such as an empty MachineList for Machines. After a live list,
// this object contains the resource version. With a cache, the options may only select a namespace and one field, and
// disable waiting for the process's own writes.
func ListShared[T any](ctx context.Context, from client.Reader, list client.ObjectList,
	o ...client.ListOption) ([]*T, error) {
	var objects []any
	var err error
	if cached, ok := from.(interface {
		ListShared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error)
	}); ok {
		objects, err = cached.ListShared(ctx, list, o...)
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
