package process

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
)

// Rule: reads-see-own-writes.
func TestSharedIsAListWithoutCopies(t *testing.T) {
	const byProvider = "class.provider"
	c := testConfig(t)
	p := start(t, c, testOptions(), func(p *Process) error {
		return p.Control().Cache.IndexField(t.Context(), &v1beta1.MachineClass{}, byProvider, func(o client.Object) []string {
			return []string{o.(*v1beta1.MachineClass).Spec.Provider}
		})
	})
	p.elected()
	api, first, second := p.Control().Client, c.LeaderElectionNamespace, newNamespace(t)
	names := func(o ...client.ListOption) []string {
		t.Helper()
		classes, err := index.ListShared[v1beta1.MachineClass](t.Context(), api, &v1beta1.MachineClassList{}, o...)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, class := range classes {
			found = append(found, class.Namespace+"/"+class.Name)
		}
		slices.Sort(found)
		return found
	}
	for i := range 20 {
		for _, namespace := range []string{first, second} {
			class := newClass(namespace, fmt.Sprintf("shared-%d", i))
			class.Spec.Provider = []string{"even", "odd"}[i%2]
			if err := api.Create(t.Context(), class); err != nil {
				t.Fatal(err)
			}
		}
		if got := names(client.InNamespace(first)); len(got) != i+1 {
			t.Fatalf("%d classes after %d were created: %v", len(got), i+1, got)
		}
	}
	for what, o := range map[string][]client.ListOption{
		"everything":                      nil,
		"a namespace":                     {client.InNamespace(first)},
		"a field":                         {client.MatchingFields{byProvider: "odd"}},
		"a field in a namespace":          {client.MatchingFields{byProvider: "odd"}, client.InNamespace(second)},
		"a value that nothing has":        {client.MatchingFields{byProvider: "none"}},
		"a namespace, without waiting":    {client.InNamespace(first), client.DisableReadYourWritesConsistency},
		"a namespace that does not exist": {client.InNamespace("nowhere-at-all")},
		"an invalid namespace":            {client.InNamespace(impossibleNamespace)},
	} {
		var list v1beta1.MachineClassList
		if err := api.List(t.Context(), &list, o...); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range list.Items {
			want = append(want, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		slices.Sort(want)
		if got := names(o...); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	odd := client.MatchingFields{byProvider: "odd"}
	for what, test := range map[string]struct {
		options []client.ListOption
		want    int
	}{
		"a field":                   {[]client.ListOption{odd}, 20},
		"a field in a namespace":    {[]client.ListOption{odd, client.InNamespace(first)}, 10},
		"a field with a limit":      {[]client.ListOption{odd, client.InNamespace(first), client.Limit(3)}, 3},
		"a field with a high limit": {[]client.ListOption{odd, client.InNamespace(first), client.Limit(30)}, 10},
		"a field and a label":       {[]client.ListOption{odd, client.MatchingLabels{"a": "b"}}, 0},
	} {
		var list v1beta1.MachineClassList
		if err := api.List(t.Context(), &list, test.options...); err != nil || len(list.Items) != test.want {
			t.Errorf("%s: got %d classes, error %v, want %d", what, len(list.Items), err, test.want)
		}
	}
	one := func() *v1beta1.MachineClass {
		classes, err := index.ListShared[v1beta1.MachineClass](t.Context(), api, &v1beta1.MachineClassList{},
			client.InNamespace(second))
		if err != nil || len(classes) != 20 {
			t.Fatalf("%d classes, %v", len(classes), err)
		}
		return slices.MinFunc(classes, func(a, b *v1beta1.MachineClass) int { return strings.Compare(a.Name, b.Name) })
	}
	if first, second := one(), one(); first != second {
		t.Error("Shared returned two copies of the same object")
	}
	var copies v1beta1.MachineClassList
	if err := api.List(t.Context(), &copies, client.MatchingFields{byProvider: one().Spec.Provider}); err != nil {
		t.Fatal(err)
	}
	for i := range copies.Items {
		class := &copies.Items[i]
		if class.Kind != "MachineClass" {
			t.Errorf("%s from a list by a field has the kind %q", class.Name, class.Kind)
		}
		class.Spec.ProviderSpec.Raw[0] = '!'
	}
	if raw := one().Spec.ProviderSpec.Raw; raw[0] == '!' {
		t.Errorf("a change of a listed class changed the cache: %s", raw)
	}

	for what, o := range map[string]client.ListOption{
		"labels": client.MatchingLabels{"a": "b"}, "a limit": client.Limit(1),
		"two fields":               client.MatchingFields{byProvider: "odd", "other": "x"},
		"a field without an index": client.MatchingFields{"other": "x"},
	} {
		if got, err := index.ListShared[v1beta1.MachineClass](t.Context(), api, &v1beta1.MachineClassList{}, o); err == nil {
			t.Errorf("selected by %s: %d classes, want an error", what, len(got))
		}
	}
	if _, err := index.ListShared[corev1.Pod](t.Context(), api, &corev1.PodList{}); !errors.Is(err, ErrNotCached) {
		t.Errorf("Shared of pods: %v, want ErrNotCached", err)
	}
	if _, err := index.ListShared[corev1.Pod](t.Context(), api, &v1beta1.MachineClassList{}); err == nil {
		t.Error("classes are returned as pods")
	}
	live, err := index.ListShared[v1beta1.MachineClass](t.Context(), p.Control().LiveClient, &v1beta1.MachineClassList{},
		client.InNamespace(first))
	if err != nil || len(live) != 20 {
		t.Errorf("live: %d classes, %v, want 20", len(live), err)
	}
}
