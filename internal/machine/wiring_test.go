package machine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/env"
)

// managedWorld returns a world whose process runs in a real manager and uses the real clock.
func managedWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := newWorld(t)
	w.cloud = newCloud(clock.RealClock{}, w.effects)
	w.cloud.ProviderName = "managed" // Machines that other tests left behind belong to another provider.
	env.Manager(t, func(ctx context.Context, mgr manager.Manager) error {
		for _, register := range []func(context.Context, client.FieldIndexer) error{index.RegisterMachines, index.RegisterTarget, resolve.RegisterIndexes} {
			if err := register(ctx, mgr.GetFieldIndexer()); err != nil {
				return err
			}
		}
		drains := drain.New(drain.Options{Target: w.api})
		if err := drains.Register(mgr, nil); err != nil {
			return err
		}
		o := w.options
		o.Cloud, o.Clock, o.Drainer = w.cloud, clock.RealClock{}, drains
		counted := counting{mgr.GetClient(), w.effects}
		o.Client, o.LiveReader = counted, countingReader{mgr.GetAPIReader(), &w.liveReads}
		o.MachineCacheVersion = wiring.CacheVersion(mgr, &v1beta1.Machine{})
		o.Classes = &resolve.Resolver{Classes: mgr.GetClient(), Secrets: mgr.GetAPIReader()}
		o.Target = &Target{Nodes: counted, LiveClient: interceptor.NewClient(w.api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				w.liveReads.Add(1)
				return c.Get(ctx, key, o, opts...)
			},
		})}
		for _, f := range change {
			f(&o)
		}
		events := func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source {
			return source.Kind(mgr.GetCache(), object, keys, changes...)
		}
		return New(o).Wiring(mgr.GetCache(), drains.Triggers()).Add(mgr, events)
	})
	return w
}

type countingReader struct {
	client.Reader
	asked *atomic.Int32
}

func (c countingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	c.asked.Add(1)
	return c.Reader.Get(ctx, key, o, opts...)
}

type counting struct {
	client.Client
	effects *effects
}

func (c counting) note(what string, o client.Object, err error) error {
	if err == nil {
		_ = c.effects.do(fmt.Sprintf("API %s %s", strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1beta1."), what), func() error {
			return nil
		})
	}
	return err
}

func (c counting) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.note("patch", o, c.Client.Patch(ctx, o, patch, opts...))
}

func (c counting) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.note("delete", o, c.Client.Delete(ctx, o, opts...))
}

func (c counting) Status() client.SubResourceWriter { return countingStatus{c.Client.Status(), c} }

type countingStatus struct {
	client.SubResourceWriter
	counting counting
}

func (c countingStatus) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	return c.counting.note("patch status", o, c.SubResourceWriter.Patch(ctx, o, patch, opts...))
}

func (w *world) await(what string, n int, done func(*v1beta1.Machine) bool) []v1beta1.Machine {
	w.t.Helper()
	return env.Await(w.t, w.api, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool, string) {
		state := ""
		for i := range l.Items {
			if !done(&l.Items[i]) {
				state += fmt.Sprintf("%s: %s\n", l.Items[i].Name, summaryOf(&l.Items[i]))
			}
		}
		return state == "" && len(l.Items) == n, fmt.Sprintf("%d machines\n%s", len(l.Items), state)
	}, client.InNamespace(w.namespace)).Items
}

func inPhase(phase v1beta1.MachinePhase) func(*v1beta1.Machine) bool {
	return func(m *v1beta1.Machine) bool { return m.Status.Phase == phase }
}

// Whenever a machine waits, an event must trigger its next pass. If a machine were requeued only by time, this test
// would time out.
func TestTriggersOfAMachine(t *testing.T) {
	w := managedWorld(t)
	const machines = 5
	waitsFor := func(reason string) func(*v1beta1.Machine) bool {
		return func(m *v1beta1.Machine) bool {
			for _, c := range m.Status.Conditions {
				if c.Type == v1beta1.ConditionLaunched && c.Reason == reason {
					return true
				}
			}
			return false
		}
	}
	var names []string
	for i := range machines {
		names = append(names, fmt.Sprintf("m-%d", i))
		w.createMachine(names[i], func(m *v1beta1.Machine) { m.Finalizers, m.Labels = nil, nil })
	}
	w.await("machines that wait for their class", machines, waitsFor(v1beta1.ReasonClassNotFound))
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	class.Spec.Provider, class.Spec.ProviderSpec = w.cloud.ProviderName, &runtime.RawExtension{Raw: []byte(`{}`)}
	class.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "credentials"}
	w.create(class)
	w.await("machines that wait for their credentials", machines, waitsFor(v1beta1.ReasonCredentialsNotFound))
	w.create(w.withFinalizer(w.secret("credentials", "token", "hunter2")))
	w.hold(class)
	w.await("machines with an instance", machines, inPhase(v1beta1.MachineProvisioned))

	for _, name := range names {
		w.node(name, true)
	}
	w.await("machines that run", machines, inPhase(v1beta1.MachineRunning))
	if n := len(w.cloud.LiveInstances()); n != machines {
		t.Errorf("there are %d instances of %d machines", n, machines)
	}
	for _, name := range names {
		w.setNodeReady(nodeNameOf(w.namespace, name), corev1.ConditionFalse)
	}
	w.await("unhealthy machines", machines, inPhase(v1beta1.MachineUnhealthy))
	for _, name := range names {
		w.setNodeReady(nodeNameOf(w.namespace, name), corev1.ConditionTrue)
	}
	w.await("machines that run again", machines, inPhase(v1beta1.MachineRunning))

	// The drain's workers evict this pod.
	w.podOn(nodeNameOf(w.namespace, names[0]))
	for _, name := range names {
		w.update(name, func(m *v1beta1.Machine) {
			m.Spec.LifecycleHooks.PreTerminate = []v1beta1.LifecycleHook{{Name: "audit.example.com", Owner: "audit"}}
		})
		w.delete(name)
	}
	env.Await(t, w.api, &corev1.PodList{}, "the eviction", func(l *corev1.PodList) (bool, string) {
		return len(l.Items) == 1 && l.Items[0].DeletionTimestamp != nil, fmt.Sprintf("%d pods", len(l.Items))
	}, client.InNamespace(w.namespace))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "work"}}
	if err := w.api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil { // as its kubelet would
		t.Fatal(err)
	}
	w.await("machines that wait for a hook", machines, func(m *v1beta1.Machine) bool {
		for _, c := range m.Status.Conditions {
			if c.Type == v1beta1.ConditionDeleting && c.Reason == v1beta1.ReasonWaitingForPreTerminateHook {
				return true
			}
		}
		return false
	})
	for _, name := range names {
		w.update(name, func(m *v1beta1.Machine) { m.Spec.LifecycleHooks.PreTerminate = nil })
	}
	w.await("no machines", 0, func(*v1beta1.Machine) bool { return false })
	for _, name := range names {
		w.wantNothingLeft(name)
	}
}

// Rule: outdated-node-taints.
func TestSetTriggersItsMachines(t *testing.T) {
	w := managedWorld(t)
	w.class("small", "")
	ofSet := w.set()
	names := []string{"m-0", "m-1"}
	for _, name := range names {
		w.createMachine(name, ofSet)
	}
	w.await("instances", len(names), func(m *v1beta1.Machine) bool { return m.Spec.ProviderID != "" })
	for _, name := range names {
		w.node(name, true)
	}
	w.await("machines that run", len(names), inPhase(v1beta1.MachineRunning))
	for _, outdated := range []bool{true, false} {
		w.declareOutdated(outdated)
		for _, name := range names {
			env.Await(t, w.api, &corev1.NodeList{}, fmt.Sprintf("node of %s tainted: %t", name, outdated),
				func(l *corev1.NodeList) (bool, string) {
					return len(l.Items) == 1 && tainted(&l.Items[0], v1beta1.NodeTaintOutdated) == outdated, ""
				}, client.MatchingFields{"metadata.name": nodeNameOf(w.namespace, name)})
		}
	}
}

func TestMachinesOfOutdatedSetAreQueuedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createMachine("m", w.set())
	set := wiring.MachineSets()
	set.Namespace, set.UID = w.namespace, w.get("m").OwnerReferences[0].UID
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	keys := machinesOfSet(w.options.Client)
	keys.Create(t.Context(), event.CreateEvent{Object: set}, q)
	q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: "other"}})
	keys.Update(t.Context(), event.UpdateEvent{ObjectOld: set, ObjectNew: set}, q)
	for _, want := range []string{"other", "m"} {
		if key, _ := q.Get(); key.Name != want {
			t.Errorf("got machine %s, want %s", key.Name, want)
		}
	}
}

func TestManyMachinesAtOnceKeepTheirWriteLimit(t *testing.T) {
	w := managedWorld(t)
	w.class("small", "")
	// When the process reconciles the second machine, it knows which machines existed before it became the leader.
	for i, first := range []string{"first", "second"} {
		w.createMachine(first)
		w.await("an instance", i+1, func(m *v1beta1.Machine) bool { return m.Spec.ProviderID != "" })
	}
	for _, first := range []string{"first", "second"} {
		w.delete(first)
	}
	w.await("no machines", 0, func(*v1beta1.Machine) bool { return false })
	w.effects.clear()
	w.liveReads.Store(0)
	const machines = 30
	budget := func(what string, most int) {
		t.Helper()
		done := w.effects.since("API")
		t.Logf("%.2f writes per machine %s", float64(len(done))/machines, what)
		// Sometimes, a write is repeated because of a conflict.
		if len(done) > most*machines+machines/5 {
			t.Errorf("%d writes for %d machines %s, more than %d each: %q", len(done), machines, what, most, done)
		}
	}
	var joining sync.WaitGroup
	for i := range machines {
		name := fmt.Sprintf("m-%d", i)
		w.createMachine(name)
		joining.Go(func() {
			env.Await(t, w.api, &v1beta1.MachineList{}, "an instance of "+name, func(l *v1beta1.MachineList) (bool, string) {
				return len(l.Items) == 1 && l.Items[0].Spec.ProviderID != "", ""
			}, client.InNamespace(w.namespace), client.MatchingFields{"metadata.name": name})
			w.node(name, true, func(n *corev1.Node) {
				n.Labels, n.Annotations = map[string]string{"os": "linux"}, map[string]string{"attach": "true"}
				n.Spec.Taints = []corev1.Taint{{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}
			})
		})
	}
	joining.Wait()
	w.await("machines that run", machines, inPhase(v1beta1.MachineRunning))
	budget("until Running", 4)
	if n := w.liveReads.Load(); n > machines/2 {
		t.Errorf("%d live reads until Running, want few for %d machines that no other process can have launched", n, machines)
	}
	if n := len(w.effects.calls()); n != machines {
		t.Errorf("%d driver calls until Running", n)
	}
	w.effects.clear()
	if err := w.api.DeleteAllOf(t.Context(), &v1beta1.Machine{}, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	w.await("no machines", 0, func(*v1beta1.Machine) bool { return false })
	budget("until gone", 4)
	if n := len(w.effects.calls()); n != machines {
		t.Errorf("%d driver calls until gone", n)
	}
}

func TestHeartbeatsTriggerNothing(t *testing.T) {
	t.Parallel()
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}}}
	old.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, tc := range []struct {
		name     string
		change   func(*corev1.Node)
		triggers bool
	}{
		{"heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		}, false},
		{"images", func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}} }, false},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		{"readiness", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		{"provider ID", func(n *corev1.Node) { n.Spec.ProviderID = "fake://1" }, true},
		{"label", func(n *corev1.Node) { n.Labels["a"] = "2" }, true},
		{"annotation", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "2"} }, true},
		{"taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{taint("a", "")} }, true},
		{"notice", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating",
				Status: corev1.ConditionTrue})
		}, true},
		{"another condition, which may be a readiness gate", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Other", Status: corev1.ConditionTrue})
		}, true},
		{"transition time", func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Now() }, false},
		{"version", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" }, true},
	} {
		changed := old.DeepCopy()
		tc.change(changed)
		if got := nodeChanged(interruption.KnownSignals()).Update(event.UpdateEvent{ObjectOld: old,
			ObjectNew: changed}); got != tc.triggers {
			t.Errorf("a change of %s triggers: %t", tc.name, got)
		}
	}
}

func TestOwnStatusWritesTriggerNothing(t *testing.T) {
	t.Parallel()
	old := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Generation: 1}}
	now := metav1.Now()
	for _, tc := range []struct {
		name     string
		change   func(*v1beta1.Machine)
		triggers bool
	}{
		{"status", func(m *v1beta1.Machine) { m.ResourceVersion, m.Status.Phase = "2", v1beta1.MachineRunning }, false},
		{"spec", func(m *v1beta1.Machine) { m.Generation = 2 }, true},
		{"annotation", func(m *v1beta1.Machine) { m.Annotations = map[string]string{"a": ""} }, true},
		{"label", func(m *v1beta1.Machine) { m.Labels = map[string]string{"a": ""} }, true},
		{"deletion", func(m *v1beta1.Machine) { m.DeletionTimestamp = &now }, true},
		{"finalizer", func(m *v1beta1.Machine) { m.Finalizers = []string{"a"} }, true},
		{"another machine with the same name", func(m *v1beta1.Machine) { m.UID = "2" }, true},
	} {
		changed := old.DeepCopy()
		tc.change(changed)
		if got := machineChanged().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: changed}); got != tc.triggers {
			t.Errorf("a change of %s triggers: %t", tc.name, got)
		}
	}
}
