package process

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: reads-see-own-writes.
func TestAllPagesOfALiveListShowTheSameMoment(t *testing.T) {
	direct, err := client.NewWithWatch(planes.control.Config(), client.Options{Scheme: testScheme()})
	if err != nil {
		t.Fatal(err)
	}
	ns := newNamespace(t)
	var want []string
	for i := range 20 {
		class := newClass(ns, fmt.Sprintf("paged-%02d", i))
		class.Labels = map[string]string{"a": "b"}
		if err := direct.Create(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		want = append(want, class.Name)
	}
	notOlder := &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
	for what, test := range map[string]struct {
		options  []client.ListOption
		expires  bool
		requests int
		more     string // an object that is created during the list and appears in the list
	}{
		"by default":              {nil, false, 3, ""},
		"by labels":               {[]client.ListOption{client.MatchingLabels{"a": "b"}}, false, 3, ""},
		"not older than":          {[]client.ListOption{notOlder}, false, 3, ""},
		"with a limit of its own": {[]client.ListOption{client.Limit(100)}, false, 1, ""},
		"when it takes too long":  {nil, true, 3, "zz-late"},
	} {
		// The API server answers this list from its cache, which may still contain the object of the previous case.
		var latest v1beta1.MachineClassList
		if err := direct.List(t.Context(), &latest, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		notOlder.Raw.ResourceVersion = latest.ResourceVersion
		requests := 0
		late := newClass(ns, "zz-late")
		late.Labels = map[string]string{"a": "b"}
		paged := pagedClient{interceptor.NewClient(direct, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				if requests++; requests == 2 {
					if err := direct.Create(ctx, late); err != nil {
						t.Error(err)
					}
					if test.expires {
						return apierrors.NewResourceExpired("too old")
					}
				}
				return c.List(ctx, list, o...)
			},
		}), 7}
		var list v1beta1.MachineClassList
		if err := paged.List(t.Context(), &list, append(test.options, client.InNamespace(ns))...); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		expected := want
		if test.more != "" {
			expected = append(slices.Clone(want), test.more)
		}
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %v, want %v", what, got, expected)
		}
		if requests != test.requests {
			t.Errorf("%s: %d requests, want %d", what, requests, test.requests)
		}
		if list.ResourceVersion == "" || list.Continue != "" {
			t.Errorf("%s: version %q, continue token %q", what, list.ResourceVersion, list.Continue)
		}
		if err := client.IgnoreNotFound(direct.Delete(t.Context(), late)); err != nil {
			t.Fatal(err)
		}
	}

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineClassList"))
	if err := (pagedClient{direct, 7}).List(t.Context(), list, client.InNamespace(ns)); err != nil ||
		len(list.Items) != 20 {
		t.Errorf("list of metadata: %d objects, %v", len(list.Items), err)
	}
	if list.Kind != "MachineClassList" || list.Items[19].Kind != "MachineClass" {
		t.Errorf("list of metadata: kind %s, kind of the items %s", list.Kind, list.Items[19].Kind)
	}
}
