//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/manifests/sources"
)

type fleetState struct {
	instances map[string]simcloud.Record
	// changes contains the number of calls that created, deleted or updated instances, by operation. Tag changes do not
	// count.
	changes map[string]int
	nodes   map[string]corev1.Node
	objects map[string]string
}

func (f *oldFleet) state() fleetState {
	f.t.Helper()
	s := fleetState{instances: map[string]simcloud.Record{}, changes: map[string]int{}, nodes: map[string]corev1.Node{},
		objects: f.oldObjects()}
	for _, r := range f.instances() {
		if r.State != simcloud.StateTerminated {
			s.instances[r.ID] = r
		}
	}
	statistics, err := f.cloud.Statistics(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, operation := range []string{simcloud.OperationCreateInstance, simcloud.OperationDeleteInstance,
		simcloud.OperationUpdateInstance} {
		s.changes[operation] = statistics.Calls[operation].Total
	}
	nodes := &corev1.NodeList{}
	if err := f.target.List(context.Background(), nodes); err != nil {
		f.t.Fatal(err)
	}
	for _, node := range nodes.Items {
		s.nodes[node.Name] = node
	}
	return s
}

func (f *oldFleet) oldObjects() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, kind := range f.kinds() {
		for _, o := range f.list(kind) {
			data, err := json.Marshal(o.Object)
			if err != nil {
				f.t.Fatal(err)
			}
			all[kind.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(data)
		}
	}
	return all
}

func (f *oldFleet) kinds() (all []schema.GroupVersionKind) {
	if f.group == "" {
		return nil // No system manages the fleet.
	}
	for _, crd := range sources.CRDs(f.group) {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		version, _, _ := unstructured.NestedString(versions[0].(map[string]any), "name")
		all = append(all, schema.GroupVersionKind{Group: f.group, Version: version, Kind: kind})
	}
	return all
}

func (f *oldFleet) list(kind schema.GroupVersionKind) []unstructured.Unstructured {
	f.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := f.control.List(context.Background(), list)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		f.t.Fatal(err)
	}
	return list.Items
}

func (f *oldFleet) someMachine() *unstructured.Unstructured {
	f.t.Helper()
	for _, kind := range f.kinds() {
		if kind.Kind == "Machine" {
			all := f.list(kind)
			i := slices.IndexFunc(all, func(m unstructured.Unstructured) bool { return metav1.GetControllerOf(&m) != nil })
			return &all[max(i, 0)]
		}
	}
	f.t.Fatalf("%s has no machines", f.group)
	return nil
}

// wantUnchanged requires that the instances and Nodes are the same. wantUnchanged ignores the tags of instances, and
// compares only the identity and state of Nodes.
func (f *oldFleet) wantUnchanged() {
	f.t.Helper()
	if all := f.differences(); len(all) > 0 {
		f.t.Errorf("the fleet has changed:\n%s", strings.Join(all, "\n"))
	}
}

func (f *oldFleet) differences() (all []string) {
	f.t.Helper()
	differs := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	after := f.state()
	if !maps.Equal(f.before.changes, after.changes) {
		differs("calls that changed instances: got %v, before %v", after.changes, f.before.changes)
	}
	for id, was := range f.before.instances {
		is, exists := after.instances[id]
		switch {
		case !exists:
			differs("instance %s of %s is gone", id, was.Name)
		case is.State != was.State, !is.LaunchTime.Equal(was.LaunchTime), is.Type != was.Type, is.Image != was.Image,
			is.KubeletVersion != was.KubeletVersion:
			differs("instance %s of %s is %+v, before it was %+v", id, was.Name, is.Instance, was.Instance)
		}
	}
	for id, is := range after.instances {
		if _, existed := f.before.instances[id]; !existed {
			differs("instance %s of %s is new", id, is.Name)
		}
	}
	for name, was := range f.before.nodes {
		is, exists := after.nodes[name]
		if !exists {
			differs("Node %s is gone", name)
		} else if disturbance := disturbanceOf(&was, &is); disturbance != "" {
			differs("Node %s %s", name, disturbance)
		}
	}
	return all
}

func (f *oldFleet) wantOldObjects() {
	f.t.Helper()
	if all := f.oldDifferences(); len(all) > 0 {
		f.t.Errorf("the old objects have changed:\n%s", strings.Join(all, "\n"))
	}
}

func (f *oldFleet) oldDifferences() (all []string) {
	f.t.Helper()
	after := f.oldObjects()
	for _, name := range slices.Sorted(maps.Keys(f.before.objects)) {
		was := f.before.objects[name]
		switch is, exists := after[name]; {
		case !exists:
			all = append(all, name+" is gone")
		case is != was:
			all = append(all, fmt.Sprintf("%s is\n%s, before it was\n%s", name, is, was))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, existed := f.before.objects[name]; !existed {
			all = append(all, name+" is new")
		}
	}
	return all
}
