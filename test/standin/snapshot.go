package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/manifests/sources"
)

// Snapshot contains the objects of an old system as JSON. The keys are KIND NAMESPACE/NAME.
type Snapshot map[string]string

// TakeSnapshot reads all objects of an API group. Objects of Cluster API are read without their status.
func TakeSnapshot(ctx context.Context, reader client.Reader, group string) (Snapshot, error) {
	all := Snapshot{}
	for _, kind := range sources.Kinds(group) {
		list, err := List(ctx, reader, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			if groups[group].unstableStatus {
				o.SetResourceVersion("")
				o.SetManagedFields(nil)
				delete(o.Object, "status")
			}
			data, err := json.Marshal(o.Object)
			if err != nil {
				return nil, err
			}
			all[kind.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(data)
		}
	}
	return all, nil
}

// List returns all objects of a kind. If the kind does not exist, the list is empty.
func List(ctx context.Context, reader client.Reader,
	kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	all, err := list(ctx, reader, kind)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

func list(ctx context.Context, reader client.Reader, kind schema.GroupVersionKind,
	options ...client.ListOption) ([]unstructured.Unstructured, error) {
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(kind)
	err := reader.List(ctx, found, options...)
	return found.Items, err
}

// Differences compares the snapshot with a later one.
func (s Snapshot) Differences(after Snapshot) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		switch is, exists := after[name]; {
		case !exists:
			all = append(all, name+" is gone")
		case is != s[name]:
			all = append(all, fmt.Sprintf("%s is\n%s, before it was\n%s", name, is, s[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, existed := s[name]; !existed {
			all = append(all, name+" is new")
		}
	}
	return all
}
