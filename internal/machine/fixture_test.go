package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env/inmemory"
	"machinist.dev/machinist/test/fakecloud"
)

// world contains a control plane, a cloud and one process, which reconciles the Machines of one namespace. Only the
// test advances the clock.
type world struct {
	t         testing.TB
	namespace string
	// api is the client with which the test reads and writes objects, without faults.
	api     client.WithWatch
	cloud   *fakecloud.Cloud
	clock   *testclock.FakePassiveClock
	effects *effects
	events  *recorder
	options Options
	// process is the running process, and drainer is its Drainer. A restart replaces both.
	process *Reconciler
	drainer *drainer

	// noTarget is true if there is no target cluster, and targetDown if it is unreachable. If joins is true, running
	// instances become nodes automatically.
	noTarget, targetDown, joins bool
	// reportsJoined is true if the driver implements provider.Joiner.
	reportsJoined bool
	unanswered    atomic.Int32
	// liveReads is the number of uncached reads by a process that runs in a manager.
	liveReads atomic.Int32
	refuse    func(verb string, o runtime.Object) error
}

const fakeProvider = "fake"

func newCloud(c clock.PassiveClock, e *effects) *fakecloud.Cloud {
	cloud := fakecloud.New(fakeProvider, c)
	cloud.WrapCall = e.do
	cloud.NodeName = func(m provider.Machine) string { return nodeNameOf(m.Namespace, m.Name) }
	return cloud
}

func newWorld(t testing.TB, change ...func(*world)) *world {
	t.Helper()
	e := &effects{}
	// The clock of the test starts with the current time, because the test cannot change the clock of the API server.
	clock := testclock.NewFakePassiveClock(time.Now())
	w := &world{t: t, clock: clock, effects: e, cloud: newCloud(clock, e), events: &recorder{}}
	w.api = inmemory.Client()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.create(namespace)
	w.namespace = namespace.Name
	for _, f := range change {
		f(w)
	}
	indexes := extractors{}
	for _, register := range []func(context.Context, client.FieldIndexer) error{index.RegisterMachines, index.RegisterTarget} {
		if err := register(t.Context(), indexes); err != nil {
			t.Fatal(err)
		}
	}
	control := e.client(w.api, w.namespace, indexes, func(verb string, o runtime.Object) error {
		if w.refuse != nil {
			return w.refuse(verb, o)
		}
		return nil
	})
	target := e.client(w.api, w.namespace, indexes, func(verb string, o runtime.Object) error {
		if w.targetDown {
			w.unanswered.Add(1)
			return errors.New("dial tcp: connection refused")
		}
		if w.refuse != nil {
			return w.refuse(verb, o)
		}
		return nil
	})
	w.options = Options{
		Cloud: w.cloud, ClusterID: "cluster", Client: control, LiveReader: control,
		Classes:  &resolve.Resolver{Classes: control, Secrets: control},
		Recorder: w.events, Clock: clock, Power: w.cloud,
	}
	if w.reportsJoined {
		w.options.Joiner = w.cloud
	}
	if !w.noTarget {
		w.options.Target = &Target{Nodes: withCachedNodes(target), LiveClient: target, API: func() (Endpoint, error) {
			return Endpoint{URL: "https://api.example:6443", CABundle: []byte("PEM")}, nil
		}}
	}
	w.restart()
	t.Cleanup(w.sweep)
	return w
}

// withCachedNodes returns a client whose reads return Nodes as the cache of the provider contains them.
func withCachedNodes(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := process.TransformNode(o)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			return meta.EachListItem(list, func(o runtime.Object) error {
				_, err := process.TransformNode(o)
				return err
			})
		},
	})
}

func noTarget(w *world) { w.noTarget = true }
func joining(w *world)  { w.joins = true }

func (w *world) restart() {
	w.effects.revive()
	if w.options.Target != nil {
		w.drainer = &drainer{Controller: drain.New(drain.Options{Target: w.options.Target.LiveClient, Clock: w.clock,
			Epoch: func() (epoch uint64) {
				if w.process.Reachability != nil {
					_, epoch = w.process.Reachability.TargetOutages()
				}
				return epoch
			}})}
		w.options.Drainer = w.drainer
	}
	w.process = New(w.options)
}

// sweep deletes the nodes of a test, which are not deleted with the namespace of the test.
func (w *world) sweep() {
	ctx := context.Background()
	nodes := &corev1.NodeList{}
	if err := w.api.List(ctx, nodes); err != nil {
		w.t.Error(err)
	}
	for i := range nodes.Items {
		if strings.HasPrefix(nodes.Items[i].Name, w.namespace+"-") {
			if err := w.api.Delete(ctx, &nodes.Items[i]); client.IgnoreNotFound(err) != nil {
				w.t.Error(err)
			}
		}
	}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.api.Create(w.t.Context(), o); err != nil {
			w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (w *world) class(name, userData string) {
	w.t.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name,
		Finalizers: []string{v1beta1.InUseFinalizer}}}
	class.Spec.Provider = w.cloud.ProviderName
	class.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	class.Spec.CredentialsRef = &v1beta1.LocalRef{Name: name + "-credentials"}
	w.create(w.withFinalizer(w.secret(name+"-credentials", "token", "hunter2")))
	if userData != "" {
		class.Spec.UserDataRef = &v1beta1.UserDataRef{Name: name + "-user-data"}
		w.create(w.secret(name+"-user-data", "userData", userData))
	}
	w.create(class)
}

func (w *world) secret(name, key, value string) *corev1.Secret {
	labels := map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseBoth}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels},
		StringData: map[string]string{key: value}}
}

// withFinalizer returns an object with the finalizer that the class controllers add to the inputs of Machines.
func (w *world) withFinalizer(o client.Object) client.Object {
	o.SetFinalizers([]string{v1beta1.InUseFinalizer})
	return o
}

// hold adds the finalizer of the class controllers to an existing object.
func (w *world) hold(o client.Object) {
	w.t.Helper()
	patch := []byte(`{"metadata":{"finalizers":["` + v1beta1.InUseFinalizer + `"]}}`)
	if err := w.api.Patch(w.t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeFinalizers(o client.Object) {
	w.t.Helper()
	if err := w.api.Patch(w.t.Context(), o,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setSecret(name, key, value string) {
	w.t.Helper()
	if err := w.api.Update(w.t.Context(), w.withFinalizer(w.secret(name, key, value))); err != nil {
		w.t.Fatal(err)
	}
}

// createMachine creates a Machine of class "small" with the finalizer and the labels that a MachineSet would set.
func (w *world) createMachine(name string, change ...func(*v1beta1.Machine)) *v1beta1.Machine {
	w.t.Helper()
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: name, Finalizers: []string{v1beta1.MachineFinalizer},
		Labels: map[string]string{v1beta1.LabelProvider: w.cloud.ProviderName, v1beta1.LabelTypeVersion: v1beta1.TypeVersion},
	}}
	m.Spec.ClassRef = &v1beta1.LocalRef{Name: "small"}
	for _, f := range change {
		f(m)
	}
	w.create(m)
	return m
}

func (w *world) running(name string, change ...func(*v1beta1.Machine)) *v1beta1.Machine {
	w.t.Helper()
	w.createMachine(name, change...)
	w.reconcile(name)
	w.node(name, true)
	w.reconcile(name)
	m := w.get(name)
	w.wantPhase(m, v1beta1.MachineRunning)
	return m
}

func (w *world) get(name string) *v1beta1.Machine {
	w.t.Helper()
	m := &v1beta1.Machine{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) update(name string, change func(*v1beta1.Machine)) {
	w.t.Helper()
	m := w.get(name)
	before := m.DeepCopy()
	change(m)
	if err := w.api.Patch(w.t.Context(), m, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) annotate(name, key string) {
	w.t.Helper()
	w.update(name, func(m *v1beta1.Machine) { set(&m.Annotations, key, "") })
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(),
		&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}

func nodeNameOf(namespace, machine string) string { return namespace + "-" + machine }

func (w *world) node(name string, ready bool, change ...func(*corev1.Node)) *corev1.Node {
	w.t.Helper()
	m := w.get(name)
	id := m.Spec.ProviderID
	for _, in := range w.cloud.LiveInstances() {
		if in.MachineUID == m.UID {
			id = in.ProviderID
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOf(w.namespace, name)}}
	node.Spec.ProviderID = id
	node.Spec.Taints = []corev1.Taint{{Key: v1beta1.NodeTaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}
	for _, f := range change {
		f(node)
	}
	w.create(node)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	w.setNodeReady(node.Name, status)
	return node
}

func (w *world) setNodeReady(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test"}}
	if err := w.api.Status().Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) getNode(name string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

func (w *world) tokens() []corev1.Secret {
	w.t.Helper()
	list := &corev1.SecretList{}
	if err := w.api.List(w.t.Context(), list, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(s corev1.Secret) bool {
		return !strings.HasPrefix(s.Annotations["machinist.dev/bootstrap-token-machine"], w.namespace+"/")
	})
}

// drainer is a Drainer whose workers run when the test calls drains.
type drainer struct {
	*drain.Controller
	// nodeUnchecked is true if no worker had checked the Node at the last outcome.
	nodeUnchecked bool
}

func (d *drainer) Drain(r drain.Request) drain.Outcome {
	outcome := d.Controller.Drain(r)
	d.nodeUnchecked = outcome.Reason == ""
	return outcome
}

func (w *world) reconcile(name string) reconcile.Result {
	w.t.Helper()
	result, err := w.pass(name)
	if err != nil {
		w.t.Fatalf("reconcile %s: %v", name, err)
	}
	return result
}

// pass runs one pass. If the pass requests a drain, the drain's workers check the Node and trigger another pass.
func (w *world) pass(name string) (reconcile.Result, error) {
	w.t.Helper()
	result, err := w.singlePass(name)
	if d := w.drainer; d == nil || !d.nodeUnchecked || err != nil {
		return result, err
	}
	w.drainer.nodeUnchecked = false
	w.drains(name)
	return w.singlePass(name)
}

func (w *world) singlePass(name string) (reconcile.Result, error) {
	return w.process.Reconcile(w.t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}})
}

func (w *world) step(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// runUntil runs passes over the machine until the given function returns true. Each pass runs at its requeue time, or
// at once after an event. A process that died is restarted.
func (w *world) runUntil(name, what string, done func() bool) {
	w.t.Helper()
	var last string
	for range 80 {
		before := len(w.effects.requeueing())
		result, err := w.pass(name)
		last = fmt.Sprintf("%+v, error %v", result, err)
		if w.effects.revive() {
			w.restart()
		}
		joined := w.joins && w.join()
		if done() {
			return
		}
		switch {
		case err != nil:
			w.step(time.Second) // The queue retries.
		case len(w.effects.requeueing()) == before && !joined:
			w.step(result.RequeueAfter)
		}
	}
	m := w.get(name)
	w.t.Fatalf("%s did not happen; last pass: %s; machine: %s; effects: %q", what, last, summaryOf(m),
		lastOf(w.effects.since(), 20))
}

func (w *world) untilPhase(name string, phase v1beta1.MachinePhase) *v1beta1.Machine {
	w.t.Helper()
	w.runUntil(name, "phase "+string(phase), func() bool { m := w.get(name); return m != nil && m.Status.Phase == phase })
	return w.get(name)
}

func (w *world) untilGone(name string) {
	w.t.Helper()
	w.runUntil(name, "the deletion of the machine", func() bool { return w.get(name) == nil })
}

func (w *world) join() (joined bool) {
	w.t.Helper()
	for _, in := range w.cloud.LiveInstances() {
		if in.State == "Running" && w.getNode(in.NodeName) == nil {
			_, name, _ := strings.Cut(in.MachineKey, "/")
			if m := w.get(name); m != nil && m.UID == in.MachineUID && m.DeletionTimestamp.IsZero() {
				w.node(name, true)
				joined = true
			}
		}
	}
	return joined
}
