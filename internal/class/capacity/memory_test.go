package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env/inmemory"
	"machinist.dev/machinist/test/fakecloud"
)

// recorder contains a Memory and the control cluster whose classes it writes.
type recorder struct {
	t      *testing.T
	api    client.WithWatch
	clock  *testclock.FakePassiveClock
	memory *Memory
	events []string
	writes atomic.Int32
	// account is the account of all classes of the test.
	account string
	// beforeWrite runs before each write of the Memory.
	beforeWrite func(class string) error
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	w := &recorder{t: t, account: string(uuid.NewUUID()), api: inmemory.Client(),
		clock: testclock.NewFakePassiveClock(began)}
	c := interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			w.writes.Add(1)
			if w.beforeWrite != nil {
				if err := w.beforeWrite(o.GetName()); err != nil {
					return err
				}
			}
			return c.SubResource(name).Patch(ctx, o, patch, opts...)
		},
	})
	w.memory = New(Options{Driver: fakecloud.New("fake", w.clock), Client: c, LiveReader: w.api, Recorder: w, Clock: w.clock})
	return w
}

func (w *recorder) Eventf(regarding, _ runtime.Object, kind, reason, _, _ string, _ ...any) {
	w.events = append(w.events, fmt.Sprintf("%s %s %s", regarding.(*v1beta1.MachineClass).Name, kind, reason))
}

// class creates a class whose instances have the given type. All classes of one test have the same account.
func (w *recorder) class(namespace, name, instanceType string) types.NamespacedName {
	w.t.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	class.Spec.Provider = "fake"
	class.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	if err := w.api.Create(w.t.Context(), class); err != nil {
		w.t.Fatal(err)
	}
	class.Status.NodeInfo = &v1beta1.NodeInfo{InstanceType: instanceType, Region: "mars", Zone: "mars-a"}
	class.Status.Account = w.account
	if err := w.api.Status().Update(w.t.Context(), class); err != nil {
		w.t.Fatal(err)
	}
	return client.ObjectKeyFromObject(class)
}

func (w *recorder) namespace() string {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "capacity-"}}
	if err := w.api.Create(w.t.Context(), namespace); err != nil {
		w.t.Fatal(err)
	}
	return namespace.Name
}

func (w *recorder) get(key types.NamespacedName) *v1beta1.MachineClass {
	w.t.Helper()
	class := &v1beta1.MachineClass{}
	if err := w.api.Get(w.t.Context(), key, class); err != nil {
		w.t.Fatal(err)
	}
	return class
}

func (w *recorder) wantExhausted(want bool, classes ...types.NamespacedName) {
	w.t.Helper()
	for _, key := range classes {
		if got := StateOf(w.get(key)).Exhausted; got != want {
			w.t.Errorf("class %s is exhausted: %t, want %t", key.Name, got, want)
		}
	}
}

// Rules: capacity-memory, capacity-shared-by-pool.
func TestAllClassesOfAPoolAreRecordedOnce(t *testing.T) {
	t.Parallel()
	w := newRecorder(t)
	one, two := w.namespace(), w.namespace()
	a, b, c := w.class(one, "a", "large"), w.class(one, "b", "large"), w.class(two, "c", "large")
	small := w.class(one, "d", "small")
	for range 3 {
		if err := w.memory.Refused(t.Context(), b, "no host"); err != nil {
			t.Fatal(err)
		}
	}
	w.wantExhausted(true, a, b, c)
	w.wantExhausted(false, small)
	if n := w.writes.Load(); n != 3 {
		t.Errorf("there were %d writes, want one for each class", n)
	}
	w.clock.SetTime(began.Add(time.Minute))
	if err := w.memory.Refused(t.Context(), a, "no host"); err != nil {
		t.Fatal(err)
	}
	if n := w.writes.Load(); n != 6 {
		t.Errorf("there were %d writes after the refusal of the probe, want one more for each class", n)
	}
	for range 3 {
		if err := w.memory.Found(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.wantExhausted(false, a, b, c)
	if n := w.writes.Load(); n != 9 {
		t.Errorf("there were %d writes", n)
	}
	if err := w.memory.Found(t.Context(), small); err != nil || len(w.get(small).Status.Conditions) > 0 {
		t.Errorf("error %v, conditions %+v", err, w.get(small).Status.Conditions)
	}
	slices.Sort(w.events) // The namespaces have random names, and the classes are listed by namespace.
	if want := []string{"a Normal CapacityFound", "a Warning NoCapacity", "b Normal CapacityFound", "b Warning NoCapacity",
		"c Normal CapacityFound", "c Warning NoCapacity"}; !slices.Equal(w.events, want) {
		t.Errorf("events: %q", w.events)
	}
}

// The class controller writes the status of the class at the same time.
//
// Rule: capacity-memory.
func TestAConflictingStatusIsKept(t *testing.T) {
	t.Parallel()
	w := newRecorder(t)
	key := w.class(w.namespace(), "a", "large")
	conflicts := 0
	w.beforeWrite = func(string) error {
		if conflicts++; conflicts > 1 {
			return nil
		}
		class := w.get(key)
		class.Status.ObservedGeneration = 7
		return w.api.Status().Update(t.Context(), class)
	}
	if err := w.memory.Refused(t.Context(), key, "no host"); err != nil {
		t.Fatal(err)
	}
	w.wantExhausted(true, key)
	if got := w.get(key).Status.ObservedGeneration; got != 7 {
		t.Errorf("the observed generation of the other write is %d", got)
	}
}

// Rule: capacity-memory.
func TestAFailedRecordIsRepeated(t *testing.T) {
	t.Parallel()
	w := newRecorder(t)
	namespace := w.namespace()
	a, b := w.class(namespace, "a", "large"), w.class(namespace, "b", "large")
	w.beforeWrite = func(class string) error {
		if class == "a" {
			return errors.New("the connection was lost")
		}
		return nil
	}
	if err := w.memory.Refused(t.Context(), a, "no host"); err == nil {
		t.Error("the failed write is not reported")
	}
	w.wantExhausted(true, b)
	w.beforeWrite = nil
	if err := w.memory.Refused(t.Context(), a, "no host"); err != nil {
		t.Fatal(err)
	}
	w.wantExhausted(true, a, b)
	gone := types.NamespacedName{Namespace: namespace, Name: "gone"}
	if err := w.memory.Refused(t.Context(), gone, "no host"); err != nil {
		t.Errorf("a class that does not exist: %v", err)
	}
}

// Rule: one-probe-per-pool.
func TestProbes(t *testing.T) {
	t.Parallel()
	w := newRecorder(t)
	namespace := w.namespace()
	a, b := w.get(w.class(namespace, "a", "large")), w.get(w.class(namespace, "b", "large"))
	small, tiny := w.get(w.class(namespace, "c", "small")), w.get(w.class(namespace, "d", "tiny"))
	m, n := types.NamespacedName{Name: "m"}, types.NamespacedName{Name: "n"}
	steps := []struct {
		class   *v1beta1.MachineClass
		machine types.NamespacedName
		want    bool
	}{{a, m, true}, {a, m, true}, {a, n, false}, {b, n, false}, {small, n, true}, {tiny, m, false}}
	for i, s := range steps {
		if got := w.memory.AcquireProbe(s.class, s.machine); got != s.want {
			t.Errorf("step %d: machine %s probes class %s: %t", i, s.machine.Name, s.class.Name, got)
		}
	}
	if waiting := w.memory.ReleaseProbe(m); !slices.Equal(waiting, []types.NamespacedName{m, n}) {
		t.Errorf("%v have waited for the probe, want m, whose class has changed, and n", waiting)
	}
	if waiting := w.memory.ReleaseProbe(m); waiting != nil {
		t.Errorf("%v have waited for a machine that does not probe", waiting)
	}
	w.memory.ReleaseProbe(n)
	if !w.memory.AcquireProbe(b, n) {
		t.Error("the machine does not probe, although the probe of its pool has ended")
	}
}
