package process

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
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
		more     string // an object that is created during the list and appears in it
	}{
		"by default":              {nil, false, 3, ""},
		"by labels":               {[]client.ListOption{client.MatchingLabels{"a": "b"}}, false, 3, ""},
		"not older than":          {[]client.ListOption{notOlder}, false, 3, ""},
		"with a limit of its own": {[]client.ListOption{client.Limit(100)}, false, 1, ""},
		"when it takes too long":  {nil, true, 3, "zz-late"},
	} {
		// The API server answers such a list from its cache, which may still contain the object that the previous case
		// deleted.
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
		}), 7, nil}
		var list v1beta1.MachineClassList
		if err := paged.List(t.Context(), &list, append(test.options, client.InNamespace(ns))...); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
			if test.requests == 3 && !test.expires && list.Items[i].ManagedFields != nil {
				t.Errorf("%s: %s has managed fields", what, list.Items[i].Name)
			}
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
	if err := (pagedClient{direct, 7, nil}).List(t.Context(), list, client.InNamespace(ns)); err != nil ||
		len(list.Items) != 20 {
		t.Errorf("list of metadata: %d objects, %v", len(list.Items), err)
	}
	if list.Kind != "MachineClassList" || list.Items[19].Kind != "MachineClass" {
		t.Errorf("list of metadata: kind %s, kind of the items %s", list.Kind, list.Items[19].Kind)
	}
}

// Rule: reads-see-own-writes.
func TestALiveListSharesObjectsWithTheCache(t *testing.T) {
	c, o := testConfig(t), testOptions()
	p := start(t, c, o, nil)
	p.elected()
	control, ns := p.Control(), client.InNamespace(c.LeaderElectionNamespace)
	for i := range 2 {
		if err := control.Client.Create(t.Context(),
			newClass(c.LeaderElectionNamespace, fmt.Sprintf("same-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	cached, err := index.Shared[v1beta1.MachineClass](t.Context(), control.Client, &v1beta1.MachineClassList{}, ns)
	if err != nil || len(cached) != 2 {
		t.Fatalf("%d classes are cached, %v", len(cached), err)
	}
	paged := control.Live.(pagedClient)
	paged.page = 1
	var list v1beta1.MachineClassList
	live, err := index.Shared[v1beta1.MachineClass](t.Context(), paged, &list, ns)
	if err != nil || len(live) != 2 || !slices.Contains(cached, live[0]) || !slices.Contains(cached, live[1]) ||
		list.ResourceVersion == "" {
		t.Errorf("got %v at version %q, %v, want the cached objects %v", live, list.ResourceVersion, err, cached)
	}
	// If the versions differ, the result is the live object.
	store, err := paged.cache.completeStore(t.Context(), &list)
	if err != nil {
		t.Fatal(err)
	}
	other, another, fresh := cached[0].DeepCopy(), cached[1].DeepCopy(), newClass(c.LeaderElectionNamespace, "new")
	other.ResourceVersion, another.UID = "1", "another"
	for _, class := range []*v1beta1.MachineClass{other, another, fresh} {
		got, ok := share(reflect.ValueOf(class).Elem(), store).(*v1beta1.MachineClass)
		if !ok || got == class || !equality.Semantic.DeepEqual(got, class) {
			t.Errorf("share() = %v for %v, want a copy", got, class)
		}
	}
	// A kind of which only a part is cached differs from a live list.
	k, err := newKinds(slices.Concat(o.ControlKinds, o.TargetKinds), o.Scheme, "")
	if err != nil {
		t.Fatal(err)
	}
	for gvk, complete := range k.complete {
		if complete != (gvk.Kind == "MachineClass") {
			t.Errorf("complete is %t for %s", complete, gvk.Kind)
		}
	}
}
