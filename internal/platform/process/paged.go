package process

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listPage is the number of objects in one page of a live list.
const listPage = 500

// pagedClient is a client that lists in pages, because the answer of the API server and the objects decoded from it are
// in memory at the same time. All pages of a list show the same moment, so the result equals that of a list in one
// piece.
type pagedClient struct {
	client.Client
	page int64
}

// List implements client.Reader. It does not change a list that has a limit.
func (c pagedClient) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(o)
	if options.Limit != 0 || options.Continue != "" {
		return c.Client.List(ctx, list, o...)
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
		page.GetObjectKind().SetGroupVersionKind(list.GetObjectKind().GroupVersionKind())
		return page, c.Client.List(ctx, page, &client.ListOptions{Namespace: options.Namespace, Raw: &o, Limit: o.Limit,
			Continue: o.Continue})
	})
	pages.PageSize = c.page
	all, _, err := pages.List(ctx, *options.AsListOptions())
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(all)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	version, err := meta.ListAccessor(all)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	list.SetResourceVersion(version.GetResourceVersion())
	return nil
}
