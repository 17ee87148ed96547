package operator

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listPage is how many objects of a live list are on their way at a time.
const listPage = 500

// pagedClient lists in pages, and without managed fields: the answer of the API server, what is decoded of it and what is
// kept of that would else be in memory all at once, which for a whole fleet is more than its cache takes. The pages of a list
// are of one moment, so that the list is what it would be in one piece. What of it the cache has in the same version is not
// held twice, if the kind is ReadOnly.
type pagedClient struct {
	client.Client
	page  int64
	cache *declaredCache
}

// List implements client.Reader. A list with a limit is not changed.
func (c pagedClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(o)
	if options.Limit != 0 || options.Continue != "" {
		return c.Client.List(ctx, list, o...)
	}
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	items.SetZero()
	held, err := c.cache.readOnly(ctx, list)
	if err != nil {
		return err
	}
	var version string
	for options.Limit = c.page; ; {
		page := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
		page.GetObjectKind().SetGroupVersionKind(list.GetObjectKind().GroupVersionKind())
		err := c.Client.List(ctx, page, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) {
			items.SetZero()                       // An answer is decoded into what is there.
			return c.Client.List(ctx, list, o...) // It took so long that the moment is forgotten.
		}
		if err != nil {
			return err
		}
		if err := withoutManagedFields(page); err != nil {
			return err
		}
		more, err := itemsOf(page)
		if err != nil {
			return err
		}
		if held != nil {
			share(more, held)
		}
		items.Set(reflect.AppendSlice(items, more))
		if version == "" {
			version = page.GetResourceVersion()
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			list.GetObjectKind().SetGroupVersionKind(page.GetObjectKind().GroupVersionKind())
			list.SetResourceVersion(version)
			return nil
		}
		// The moment is that of the first page.
		if options.Raw != nil {
			raw := *options.Raw
			raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
			options.Raw = &raw
		}
	}
}

func itemsOf(list client.ObjectList) (reflect.Value, error) {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return reflect.Value{}, fmt.Errorf("list %T: %w", list, err)
	}
	return reflect.ValueOf(pointer).Elem(), nil
}

func withoutManagedFields(list client.ObjectList) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.(metav1.Object); ok {
			object.SetManagedFields(nil)
		}
		return nil
	})
}

// share replaces items that a cache has in the same version.
func share(items reflect.Value, held toolscache.Store) {
	for i := range items.Len() {
		item, ok := items.Index(i).Addr().Interface().(client.Object)
		if !ok {
			return
		}
		object, there, err := held.GetByKey(toolscache.MetaObjectToName(item).String())
		if err != nil || !there {
			continue
		}
		cached, ok := object.(client.Object)
		if ok && cached.GetUID() == item.GetUID() && cached.GetResourceVersion() == item.GetResourceVersion() {
			items.Index(i).Set(reflect.ValueOf(cached).Elem())
		}
	}
}

// readOnly returns what is cached of a list's kind if the kind is ReadOnly, else nil.
func (c *declaredCache) readOnly(ctx context.Context, list client.ObjectList) (toolscache.Store, error) {
	if c == nil {
		return nil, nil
	}
	f, err := c.kinds.check(list)
	if err != nil || !c.kinds.readOnly[f.GroupVersionKind] {
		return nil, nil // Not cached in this form.
	}
	return c.indexer(ctx, f)
}
