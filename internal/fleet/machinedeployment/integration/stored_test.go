package integration

import (
	"bytes"
	"os"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/test/env"
)

// The schemas and their rules need a real API server.
func TestStoredObjects(t *testing.T) {
	env.Start(t)
	t.Run("stay as they are", testStoredObjectsStayAsTheyAre)
	t.Run("with a placement stop earlier versions", testPlacementStopsEarlierVersions)
}

// testStoredObjectsStayAsTheyAre restores a fleet that the controllers and schemas before spec.placement stored on a
// real API server: the file contains these objects without managed fields, creation times and namespace.
func testStoredObjectsStayAsTheyAre(t *testing.T) {
	b := newBench(t)
	stored := b.restore("testdata/stored.yaml")
	versions := map[string]string{}
	for _, want := range stored {
		got := b.read(want)
		versions[want.GetName()] = got.GetResourceVersion()
		for _, path := range [][]string{{"spec"}, {"status"}, {"metadata", "labels"}, {"metadata", "annotations"}} {
			is, _, _ := unstructured.NestedFieldNoCopy(got.Object, path...)
			was, _, _ := unstructured.NestedFieldNoCopy(want.Object, path...)
			if !reflect.DeepEqual(is, was) {
				t.Errorf("%s %s: %v is %v, want %v", want.GetKind(), want.GetName(), path, is, was)
			}
		}
	}

	t.Log("an update without a change stores nothing, because the serialized form is the same")
	for _, o := range stored {
		var object client.Object = b.read(o)
		if o.GetKind() != "MachineDeployment" { // The Go types write the durations of users in another form.
			typed, err := env.Scheme().New(o.GroupVersionKind())
			b.must(err)
			object = typed.(client.Object)
			b.must(b.api.Get(b.ctx, client.ObjectKey{Namespace: b.namespace, Name: o.GetName()}, object))
		}
		b.must(b.api.Update(b.ctx, object))
		b.must(b.api.Status().Update(b.ctx, object))
	}

	t.Log("the controllers write nothing")
	sets := machineset.New(machineset.Options{Client: b.cached(), LiveReader: b.live(), Recorder: b.events, Clock: b.clock,
		MachineCacheVersion: func() string { return "999999999999" }})
	b.took()
	for range 3 {
		b.reconcile()
		_, err := sets.Reconcile(b.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace,
			Name: b.sets()["a"].Name}})
		b.must(err)
	}
	for _, o := range stored {
		if now := b.read(o); now.GetResourceVersion() != versions[o.GetName()] {
			t.Errorf("%s %s was written: %v; calls: %v", o.GetKind(), o.GetName(), now.Object, b.took())
		}
	}
	list := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
	if len(list.Items) != 3 || len(b.sets()) != 1 {
		t.Errorf("%d machines and %d sets, want 3 and 1", len(list.Items), len(b.sets()))
	}
	if events := b.events.took(); len(events) > 0 {
		t.Errorf("events are %v", events)
	}

	t.Log("the same controllers write if something changes")
	b.change(class("b"))
	b.reconcile()
	if len(b.sets()) != 2 {
		t.Error("a change of the class creates no set")
	}
}

// testPlacementStopsEarlierVersions writes what a version without spec.placement would write for objects with a
// placement. The version reads a template without a class, and loses the placement when it creates objects.
func testPlacementStopsEarlierVersions(t *testing.T) {
	b := newBench(t)
	b.create(3, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = nil
		d.Spec.Placement = &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{{Name: "zone-a",
			Options: []v1beta1.PlacementOption{{ClassName: "a"}}}}}
	})
	b.hooks.beforeCreate = func(set *v1beta1.MachineSet) { set.Spec.Placement = nil }
	b.reconcile()
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionFalse, v1beta1.ReasonMachineSetCreateError)
	list := &v1beta1.MachineSetList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
	if len(list.Items) != 0 {
		t.Errorf("the API server admits a set without class and placement: %+v", list.Items[0].Spec)
	}
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web"}}
	if err := b.api.Create(b.ctx, m); !apierrors.IsInvalid(err) {
		t.Errorf("create a machine without class and provider: got %v, want it to be invalid", err)
	}
}

// restore creates the objects in a file, with their status. Their owners precede them in the file.
func (b *bench) restore(path string) (objects []*unstructured.Unstructured) {
	b.Helper()
	data, err := os.ReadFile(path)
	b.must(err)
	uids := map[types.UID]types.UID{}
	for _, document := range bytes.Split(data, []byte("---\n"))[1:] {
		object := &unstructured.Unstructured{}
		b.must(yaml.Unmarshal(document, object))
		owners := object.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = uids[owners[i].UID]
		}
		object.SetOwnerReferences(owners)
		objects = append(objects, object)
		created := object.DeepCopy()
		created.SetNamespace(b.namespace)
		created.SetUID("")
		b.must(b.api.Create(b.ctx, created))
		uids[object.GetUID()] = created.GetUID()
		created.Object["status"] = object.DeepCopy().Object["status"]
		b.must(b.api.Status().Update(b.ctx, created))
	}
	return objects
}

func (b *bench) read(o *unstructured.Unstructured) *unstructured.Unstructured {
	b.Helper()
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(o.GroupVersionKind())
	b.must(b.api.Get(b.ctx, client.ObjectKey{Namespace: b.namespace, Name: o.GetName()}, got))
	return got
}
