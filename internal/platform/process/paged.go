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

const listPage = 500

// pagedClient lists in pages. Pages save memory, because the encoded answer and the decoded objects are in memory at
// the same time. All pages show the objects of the same moment.
type pagedClient struct {
	client.Client
	page int64
}

// List implements client.Reader. If the caller has set a limit or a continue token, List sends the request unchanged.
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
