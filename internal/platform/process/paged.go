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

// listPage is how many objects of a live list are on their way at a time.
const listPage = 500

// pagedClient lists in pages, and without managed fields: the answer of the API server and the objects decoded from it
// would otherwise be in memory at once. Of 5,000 small Machines that is 4.7 MB of JSON (944 bytes each) and 9.7 MB of
// objects, almost as much as their cache; a page has a tenth (TestDeparturesFromTheLibrariesAreCheaper). The pages of a
// list are of one moment, so that the list is what it would be in one piece.
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
	return c.pages(ctx, list, options, func(page reflect.Value) { items.Set(reflect.AppendSlice(items, page)) },
		items.SetZero)
}

// Shared is List for index.Shared: it returns pointers, and what the cache has in the same version is not held twice.
// It lists all that there is: a limit is not heeded.
func (c pagedClient) Shared(ctx context.Context, list client.ObjectList, o ...client.ListOption) ([]any, error) {
	lost, err := c.cache.whole(ctx, list)
	if err != nil {
		return nil, err
	}
	var objects []any
	add := func(page reflect.Value) {
		for i := range page.Len() {
			objects = append(objects, share(page.Index(i), lost))
		}
	}
	err = c.pages(ctx, list, (&client.ListOptions{}).ApplyOptions(o), add, func() { objects = nil })
	return objects, err
}

// pages calls add with the items of each page, after it called reset, and sets the list's resource version.
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
			// It took so long that the moment is forgotten: once more, in one piece.
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

// share returns a pointer to an item as a cache has it, if that is of the same version, or else to a copy, which does
// not keep the rest of the page.
func share(item reflect.Value, lost toolscache.Store) any {
	if object, ok := item.Addr().Interface().(client.Object); ok && lost != nil {
		known, there, err := lost.GetByKey(toolscache.MetaObjectToName(object).String())
		cached, ok := known.(client.Object)
		if err == nil && there && ok && cached.GetUID() == object.GetUID() &&
			cached.GetResourceVersion() == object.GetResourceVersion() {
			return cached
		}
	}
	alone := reflect.New(item.Type())
	alone.Elem().Set(item)
	return alone.Interface()
}

// whole returns what is cached of a list's kind, or nil if that is not what a live list returns.
func (c *declaredCache) whole(ctx context.Context, list client.ObjectList) (toolscache.Store, error) {
	if c == nil {
		return nil, nil
	}
	f, err := c.kinds.check(list)
	if err != nil || !c.kinds.whole[f.GroupVersionKind] {
		return nil, nil // Not cached in this form.
	}
	return c.indexer(ctx, f)
}
