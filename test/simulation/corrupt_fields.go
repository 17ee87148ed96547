package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
)

// corruptible are the kinds whose fields are corrupted: Machinist's own kinds, and other kinds in which Machinist keeps
// state. Ordinary inputs are not corrupted, because the other scenarios change them: specs, the data of Secrets, Nodes,
// and the tags of instances.
//
// The Leases of Machinist's processes are corrupted in a different way (see corrupt_lease.go). The world has no Leases
// for Nodes. The Lease that a migration acquires from an old system stays intact, because the old system would treat
// any write as the loss of its leadership.
var corruptible = map[Cluster][]schema.GroupVersionKind{
	InControl: {
		v1beta1.GroupVersion.WithKind("MachineDeployment"), v1beta1.GroupVersion.WithKind("MachineSet"),
		v1beta1.GroupVersion.WithKind("Machine"), v1beta1.GroupVersion.WithKind("MachineClass"),
		v1beta1.GroupVersion.WithKind("MachineHealthCheck"), v1beta1.GroupVersion.WithKind("MachineDisruptionBudget"),
		v1beta1.GroupVersion.WithKind("Migration"), corev1.SchemeGroupVersion.WithKind("Secret"),
	},
	InTarget: {corev1.SchemeGroupVersion.WithKind("Secret"), requestKind},
}

// notCorruptible contains the fields that the API server controls. A write to such a field either has no effect or has
// another meaning, such as a deletion.
var notCorruptible = []string{"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid",
	"metadata.resourceVersion", "metadata.creationTimestamp", "metadata.generation", "metadata.generateName",
	"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.managedFields", "metadata.selfLink"}

type content = map[string]any

type stored struct {
	Field
	object  client.Object
	content content
	// earlierVersions returns the earlier versions of the object, the newest one first. If earlierVersions is nil, the
	// earlier versions are unknown.
	earlierVersions func() ([]content, error)
}

// storedObjects returns all objects with their JSON. The order is always the same.
func (w *World) storedObjects() (all []stored, err error) {
	for _, cluster := range []Cluster{InControl, InTarget} {
		for _, gvk := range corruptible[cluster] {
			for _, o := range w.serverOf(cluster).Snapshot(gvk) {
				c, err := contentOf(o)
				if err != nil {
					return nil, err
				}
				all = append(all, stored{Field{Cluster: cluster, Kind: gvk.Kind, Namespace: o.GetNamespace(),
					Name: o.GetName()}, o, c, w.beforeOf(cluster, gvk, o)})
			}
		}
	}
	inUse, err := w.leases()
	if err != nil {
		return nil, err
	}
	return append(all, inUse...), nil
}

// beforeOf returns a function that finds the earlier versions of an object. beforeOf searches the log only on its first
// call.
func (w *World) beforeOf(cluster Cluster, gvk schema.GroupVersionKind, o client.Object) func() ([]content, error) {
	return sync.OnceValues(func() (all []content, err error) {
		for _, c := range slices.Backward(w.serverOf(cluster).Changes(0)) {
			if c.GVK != gvk || c.Old == nil || c.Old.GetUID() != o.GetUID() {
				continue
			}
			before, err := contentOf(c.Old)
			if err != nil {
				return nil, err
			}
			all = append(all, before)
		}
		return all, nil
	})
}

func (w *World) serverOf(c Cluster) *apiserver.Server {
	if c == InTarget {
		return w.target
	}
	return w.control
}

func contentOf(o client.Object) (content, error) {
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T %s: %w", o, o.GetName(), err)
	}
	return c, nil
}

// isInput reports whether a field contains what users request. The spec of a Lease is not an input, because it records
// which process leads.
func isInput(kind, field string) bool { return field == "spec" && kind != "Lease" || field == "data" }

func fieldsOf(kind string, c content) (paths [][]string) {
	var walk func(value any, path []string)
	visit := func(value any, path []string) {
		if len(path) == 1 && path[0] == "metadata" {
			walk(value, path)
			return
		}
		if slices.Contains(notCorruptible, strings.Join(path, ".")) || len(path) == 1 && isInput(kind, path[0]) {
			return
		}
		paths = append(paths, slices.Clone(path))
		walk(value, path)
	}
	walk = func(value any, path []string) {
		switch x := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(x)) {
				visit(x[name], append(slices.Clip(path), name))
			}
		case []any:
			for i, item := range x {
				visit(item, append(slices.Clip(path), listKey(x, i)))
			}
		}
	}
	walk(c, nil)
	return paths
}

// listKey returns the key of a list item: the value of the usual key property if it is unique, and otherwise the index.
func listKey(list []any, i int) string {
	of := func(item any) string {
		switch x := item.(type) {
		case string:
			return "=" + x
		case map[string]any:
			for _, name := range []string{"type", "key"} {
				if text, ok := x[name].(string); ok {
					return name + "=" + text
				}
			}
		}
		return ""
	}
	key := of(list[i])
	if key == "" || strings.HasPrefix(key, "=") && len(key) > 60 {
		return fmt.Sprintf("#%d", i)
	}
	for j := range list {
		if j != i && of(list[j]) == key {
			return fmt.Sprintf("#%d", i)
		}
	}
	return key
}

func valueAt(value any, path []string) (any, bool) {
	if len(path) == 0 {
		return value, true
	}
	switch x := value.(type) {
	case map[string]any:
		if next, ok := x[path[0]]; ok {
			return valueAt(next, path[1:])
		}
	case []any:
		for i := range x {
			if listKey(x, i) == path[0] {
				return valueAt(x[i], path[1:])
			}
		}
	}
	return nil, false
}

// withValue returns a copy of a value in which the value at the path is replaced or removed. If the parent does not
// exist, nothing changes.
func withValue(value any, path []string, to any, drop bool) any {
	switch x := value.(type) {
	case map[string]any:
		out := maps.Clone(x)
		next, ok := x[path[0]]
		switch {
		case len(path) > 1 && !ok:
		case len(path) > 1:
			out[path[0]] = withValue(next, path[1:], to, drop)
		case drop:
			delete(out, path[0])
		default:
			out[path[0]] = to
		}
		return out
	case []any:
		out := slices.Clone(x)
		for i := range x {
			switch {
			case listKey(x, i) != path[0]:
			case len(path) > 1:
				out[i] = withValue(x[i], path[1:], to, drop)
			case drop:
				return slices.Delete(out, i, i+1)
			default:
				out[i] = to
			}
		}
		return out
	}
	return value
}

func sameValue(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func asObject(c content) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(c)}
}
