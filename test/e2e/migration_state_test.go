//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/fleet"
	"machinist.dev/machinist/test/manifests/sources"
	"machinist.dev/machinist/test/standin"
)

type fleetState struct {
	instances map[string]simcloud.Record
	// changes contains the number of calls that created, deleted or updated instances, by operation. Tag changes do not
	// count.
	changes map[string]int
	nodes   map[string]corev1.Node
	objects standin.Snapshot
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

func (f *oldFleet) oldObjects() standin.Snapshot {
	f.t.Helper()
	if f.group == "" {
		return nil // No system manages the fleet.
	}
	all, err := standin.TakeSnapshot(context.Background(), f.control, f.group)
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (f *oldFleet) list(kind schema.GroupVersionKind) []unstructured.Unstructured {
	f.t.Helper()
	all, err := standin.List(context.Background(), f.control, kind)
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (f *oldFleet) someMachine() *unstructured.Unstructured {
	f.t.Helper()
	for _, kind := range sources.Kinds(f.group) {
		if kind.Kind == "Machine" {
			all := f.list(kind)
			i := slices.IndexFunc(all, func(m unstructured.Unstructured) bool { return metav1.GetControllerOf(&m) != nil })
			return &all[max(i, 0)]
		}
	}
	f.t.Fatalf("%s has no machines", f.group)
	return nil
}

// watch records the disturbances of the Nodes and of their pods, except those of the old controller.
func (f *oldFleet) watch() *fleet.Watch {
	f.t.Helper()
	return fleet.StartWatch(f.t, f.Target.Config(), f.before.nodes, f.workload.Name)
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
		} else if disturbance := fleet.Disturbance(&was, &is); disturbance != "" {
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

func (f *oldFleet) oldDifferences() []string {
	f.t.Helper()
	return f.before.objects.Differences(f.oldObjects())
}
