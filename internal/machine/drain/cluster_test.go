package drain_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/internal/machine/drain"
)

const patience = 2 * time.Minute

// ignoresDeletion is the label of pods that the kubelet of these tests does not remove.
const ignoresDeletion = "test/kept"

// sharedControlPlane is the control plane that the tests of this package share. The first test that needs the control
// plane starts it.
var sharedControlPlane struct {
	once sync.Once
	cp   *controlplane.ControlPlane
	err  error
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code := m.Run()
	if sharedControlPlane.cp != nil {
		if err := sharedControlPlane.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// cluster is a real API server with the disruption controller, and with a fake kubelet for Nodes that have no machine.
type cluster struct {
	*testing.T
	client.WithWatch
	config    *rest.Config
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	t.Parallel()
	sharedControlPlane.once.Do(func() {
		sharedControlPlane.cp, sharedControlPlane.err = controlplane.Start(context.Background(), controlplane.Options{
			WithControllerManager: true,
			// The Nodes have no real kubelet, so the node lifecycle and taint eviction controllers would evict pods.
			// The DaemonSet controller and the garbage collector would delete pods that the drain has to handle.
			ExtraControllerManagerArgs: []string{"--controllers=-daemonset-controller,-garbage-collector-controller," +
				"-node-lifecycle-controller,-taint-eviction-controller"},
		})
	})
	if sharedControlPlane.err != nil {
		t.Fatal(sharedControlPlane.err)
	}
	c := &cluster{T: t, config: sharedControlPlane.cp.Config()}
	var err error
	if c.WithWatch, err = client.NewWithWatch(c.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "drain-"}}
	c.create(ns)
	c.namespace = ns.Name
	await(c, "the default service account", &corev1.ServiceAccountList{},
		func(l *corev1.ServiceAccountList) (bool, string) {
			return len(l.Items) > 0, "none"
		})
	c.startKubelet()
	return c
}

func (c *cluster) create(o client.Object) {
	c.Helper()
	if err := c.Create(context.Background(), o); err != nil {
		c.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (c *cluster) remove(o client.Object) {
	c.Helper()
	if err := c.Delete(context.Background(), o, client.GracePeriodSeconds(0)); err != nil {
		c.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

func (c *cluster) node(name string) *corev1.Node {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + name}}
	c.create(n)
	return n
}

func (c *cluster) pod(node *corev1.Node, name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	c.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:   node.Name,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	c.create(p)
	before := p.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Patch(context.Background(), p, client.MergeFrom(before)); err != nil {
		c.Fatalf("set the status of pod %s: %v", name, err)
	}
	return p
}

func blocked(p *corev1.Pod) { p.Labels[ignoresDeletion] = "" }

func withGrace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// budget creates a PodDisruptionBudget for all pods of the namespace, and waits until its status allows or forbids
// evictions.
func (c *cluster) budget(name string, edit func(*policyv1.PodDisruptionBudget),
	allows bool) *policyv1.PodDisruptionBudget {
	c.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	edit(b)
	c.create(b)
	await(c, "the budget to be observed", &policyv1.PodDisruptionBudgetList{},
		func(l *policyv1.PodDisruptionBudgetList) (bool, string) {
			for _, b := range l.Items {
				if b.Name == name {
					return b.Status.ObservedGeneration == b.Generation && b.Status.ExpectedPods > 0 &&
							(b.Status.DisruptionsAllowed > 0) == allows,
						fmt.Sprintf("%+v", b.Status)
				}
			}
			return false, "none"
		})
	return b
}

func (c *cluster) podNow(p *corev1.Pod) *corev1.Pod {
	c.Helper()
	var now corev1.Pod
	err := c.Get(context.Background(), client.ObjectKeyFromObject(p), &now)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return &now
}

// startKubelet simulates the kubelets of all Nodes: it ends the terminating pods in the namespace. Pods with the label
// ignoresDeletion do not end.
func (c *cluster) startKubelet() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.Cleanup(func() { cancel(); running.Wait() })
	events, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(c.namespace))
	if err != nil {
		c.Fatal(err)
	}
	running.Go(func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			p, ok := event.Object.(*corev1.Pod)
			if !ok || p.DeletionTimestamp.IsZero() {
				continue
			}
			if _, blocked := p.Labels[ignoresDeletion]; !blocked {
				err := c.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
				if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					c.Errorf("the kubelet cannot remove pod %s: %v", p.Name, err)
				}
			}
		}
	})
}

func await[L client.ObjectList](c *cluster, what string, list L, done func(L) (bool, string)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	events, err := c.Watch(ctx, list, client.InNamespace(c.namespace))
	if err != nil {
		c.Fatal(err)
	}
	defer events.Stop()
	for {
		now := list.DeepCopyObject().(L)
		if err := c.List(ctx, now, client.InNamespace(c.namespace)); err != nil {
			c.Fatalf("wait for %s: %v", what, err)
		}
		ok, state := done(now)
		if ok {
			return
		}
		if _, open := <-events.ResultChan(); !open {
			c.Fatalf("timed out waiting for %s: %s", what, state)
		}
	}
}

// reconciler simulates the Machine reconciler. When the drain controller triggers a machine, the reconciler calls Drain
// for this machine.
type reconciler struct {
	*cluster
	*drain.Controller

	mu       sync.Mutex
	requests map[types.NamespacedName]drain.Request
	outcomes map[types.NamespacedName]drain.Outcome
	passes   int
	changed  chan struct{} // closed and replaced with each pass
}

// startDrains starts the drain controller and a reconciler for the machines that the drain controller triggers. The two
// controllers run until the test ends.
func (c *cluster) startDrains(o drain.Options, edits ...func(*drain.Options)) *reconciler {
	c.Helper()
	yes := true
	mgr, err := manager.New(c.config, manager.Options{
		Scheme:     scheme.Scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &yes},
	})
	if err != nil {
		c.Fatal(err)
	}
	if o.Evict == nil {
		if o.Evict, err = drain.EvictWith(c.config, nil); err != nil {
			c.Fatal(err)
		}
	}
	o.Target = c.WithWatch
	events := func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source {
		return source.Kind(mgr.GetCache(), object, keys, changes...)
	}
	for _, edit := range edits {
		edit(&o)
	}
	r := &reconciler{
		cluster: c, Controller: drain.New(o), changed: make(chan struct{}),
		requests: map[types.NamespacedName]drain.Request{}, outcomes: map[types.NamespacedName]drain.Outcome{},
	}
	if err := r.Register(mgr, events); err != nil {
		c.Fatal(err)
	}
	machines, err := controller.New("machines", mgr, controller.Options{
		MaxConcurrentReconciles: 4,
		Reconciler: reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			r.reconcile(request.NamespacedName)
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		c.Fatal(err)
	}
	if err := machines.Watch(r.Triggers()); err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	c.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Errorf("the manager failed: %v", err)
		}
	})
	return r
}

// requestDrain calls Drain for a node with a deadline, as the Machine reconciler does when a Machine is deleted.
func (r *reconciler) requestDrain(node *corev1.Node, length time.Duration,
	edits ...func(*drain.Request)) types.NamespacedName {
	now := time.Now()
	request := drain.Request{
		Subject: drain.Subject{Machine: types.NamespacedName{Namespace: "machines", Name: node.Name},
			UID: types.UID(node.Name), Node: node.Name, NodeUID: node.UID},
		Start: now, Deadline: now.Add(length), NodeReachable: true,
	}
	r.mu.Lock()
	if before, asked := r.requests[request.Machine]; asked {
		request.Start, request.Deadline = before.Start, before.Deadline
	}
	for _, edit := range edits {
		edit(&request)
	}
	r.requests[request.Machine] = request
	r.mu.Unlock()
	r.reconcile(request.Machine)
	return request.Machine
}

func (r *reconciler) reconcile(machine types.NamespacedName) {
	r.mu.Lock()
	request := r.requests[machine]
	r.mu.Unlock()
	outcome := r.Drain(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes[machine] = outcome
	r.passes++
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *reconciler) await(what string, done func(map[types.NamespacedName]drain.Outcome) bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		ok, state, changed := done(r.outcomes), fmt.Sprintf("%+v", r.outcomes), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.Fatalf("timed out waiting for %s: %.2000s", what, state)
		}
	}
}

func (r *reconciler) awaitOne(machine types.NamespacedName, what string,
	done func(drain.Outcome) bool) (o drain.Outcome) {
	r.Helper()
	r.await(what, func(all map[types.NamespacedName]drain.Outcome) bool {
		o = all[machine]
		return done(o)
	})
	return o
}

func isDone(o drain.Outcome) bool { return o.IsDone }

func (c *cluster) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.namespace, Name: name}
}
