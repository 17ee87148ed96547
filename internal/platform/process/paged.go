package process

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

// listPage is the number of objects in one page of a live list.
const listPage = 500

// pagedClient is a client that lists in pages and drops managed fields. Without pages, the whole answer of the API
// server and all objects decoded from it would be in memory at the same time. For 5,000 small Machines, that is 4.7 MB
// of JSON and 9.7 MB of objects, almost as much as their cache. A page needs a tenth of that
// (TestDeparturesFromTheLibrariesAreCheaper). All pages of a list show the same moment, so the result equals that of a
// list in one piece.
type pagedClient struct {
	client.Client
	page  int64
	cache *declaredCache
}

// List implements client.Reader. It does not change a list that has a limit.
func (c pagedClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(o)
	if options.Limit != 0 || options.Continue != "" {
		return c.Client.List(ctx, list, o...)
	}
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	return c.pages(ctx, list, options, func(page reflect.Value) { items.Set(reflect.AppendSlice(items, page)) },
		items.SetZero)
}

// Shared is List for index.Shared. It returns pointers, and takes an object from the cache if the cache contains the
// same version. It always lists everything, even if a limit is set.
func (c pagedClient) Shared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error) {
	cached, err := c.cache.completeStore(ctx, list)
	if err != nil {
		return nil, err
	}
	var objects []any
	add := func(page reflect.Value) {
		for i := range page.Len() {
			objects = append(objects, share(page.Index(i), cached))
		}
	}
	err = c.pages(ctx, list, (&client.ListOptions{}).ApplyOptions(o), add, func() { objects = nil })
	return objects, err
}

// pages calls reset, then add with the items of each page, and sets the resource version of the list.
func (c pagedClient) pages(ctx context.Context, list client.ObjectList, options *client.ListOptions,
	add func(reflect.Value), reset func()) error {
	reset()
	var version string
	first := *options
	options.Limit = c.page
	for {
		page := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
		page.GetObjectKind().SetGroupVersionKind(list.GetObjectKind().GroupVersionKind())
		err := c.Client.List(ctx, page, options)
		if options.Continue != "" && apierrors.IsResourceExpired(err) {
			// The list took so long that its resource version expired. List again, in one piece.
			reset()
			*options, version = first, ""
			err = c.Client.List(ctx, page, options)
		}
		if err != nil {
			return err
		}
		if err := withoutManagedFields(page); err != nil {
			return err
		}
		items, err := itemsOf(page)
		if err != nil {
			return err
		}
		add(items)
		if version == "" {
			version = page.GetResourceVersion()
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			list.GetObjectKind().SetGroupVersionKind(page.GetObjectKind().GroupVersionKind())
			list.SetResourceVersion(version)
			return nil
		}
		// The token of the first page determines the resource version of the others.
		if options.Raw != nil {
			raw := *options.Raw
			raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
			options.Raw = &raw
		}
	}
}

// itemsOf returns the slice of a list's items.
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

// share returns a pointer to the cached object if it has the same version as an item. Otherwise it returns a copy of
// the item, so that the rest of the page can be garbage collected.
func share(item reflect.Value, store toolscache.Store) any {
	if object, ok := item.Addr().Interface().(client.Object); ok && store != nil {
		known, there, err := store.GetByKey(toolscache.MetaObjectToName(object).String())
		cached, ok := known.(client.Object)
		if err == nil && there && ok && cached.GetUID() == object.GetUID() &&
			cached.GetResourceVersion() == object.GetResourceVersion() {
			return cached
		}
	}
	itemCopy := reflect.New(item.Type())
	itemCopy.Elem().Set(item)
	return itemCopy.Interface()
}

// completeStore returns the cached objects of a list's kind. It returns nil if the kind is not cached in the form and
// completeness of a live list.
func (c *declaredCache) completeStore(ctx context.Context, list client.ObjectList) (toolscache.Store, error) {
	if c == nil {
		return nil, nil
	}
	f, err := c.kinds.check(list)
	if err != nil || !c.kinds.complete[f.GroupVersionKind] {
		return nil, nil
	}
	return c.indexer(ctx, f)
}
