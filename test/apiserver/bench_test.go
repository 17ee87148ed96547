package apiserver

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func worldWithMachines(t testing.TB, machines int) *world {
	w := newWorld()
	for i := range machines {
		m := machine(fmt.Sprintf("m-%03d", i))
		m.Finalizers = []string{v1beta1.MachineFinalizer}
		w.must(t, w.Create(t.Context(), m))
		before := m.DeepCopy()
		setRunning(m)
		w.must(t, w.Status().Patch(t.Context(), m, client.MergeFrom(before)))
	}
	return w
}

func BenchmarkGet(b *testing.B) {
	w := worldWithMachines(b, 50)
	m := &v1beta1.Machine{}
	b.ReportAllocs()
	for b.Loop() {
		w.must(b, w.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "m-025"}, m))
	}
}

func BenchmarkList50(b *testing.B) {
	w := worldWithMachines(b, 50)
	b.ReportAllocs()
	for b.Loop() {
		w.must(b, w.List(b.Context(), &v1beta1.MachineList{}, client.InNamespace(namespace), client.UnsafeDisableDeepCopy))
	}
}

func BenchmarkCreate(b *testing.B) {
	w := newWorld()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.must(b, w.Create(b.Context(), machine(fmt.Sprintf("m-%06d", i))))
	}
}

func BenchmarkPatchStatus(b *testing.B) {
	w := worldWithMachines(b, 50)
	m := &v1beta1.Machine{}
	w.must(b, w.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "m-025"}, m))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		before := m.DeepCopy()
		m.Status.Conditions[1].Message = fmt.Sprint(i)
		w.must(b, w.Status().Patch(b.Context(), m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
}

func BenchmarkMergeFrom(b *testing.B) {
	w := worldWithMachines(b, 1)
	m := &v1beta1.Machine{}
	w.must(b, w.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "m-000"}, m))
	before := m.DeepCopy()
	m.Status.Conditions[1].Message = "other"
	b.ReportAllocs()
	for b.Loop() {
		_, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(m)
		w.must(b, err)
	}
}

func BenchmarkPatchMetadata(b *testing.B) {
	w := worldWithMachines(b, 50)
	m := &v1beta1.Machine{}
	w.must(b, w.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "m-025"}, m))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		before := m.DeepCopy()
		m.Annotations = map[string]string{"a": fmt.Sprint(i)}
		w.must(b, w.Patch(b.Context(), m, client.MergeFrom(before)))
	}
}

func BenchmarkPending(b *testing.B) {
	w := worldWithMachines(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		w.pendingAt = 0
		w.PendingSteps()
	}
}
