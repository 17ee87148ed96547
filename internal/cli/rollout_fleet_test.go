package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
)

// rolloutFleet is a namespace with the deployment web, the real controllers and a fake provider.
type rolloutFleet struct {
	testing.TB
	api       client.WithWatch
	namespace string
	provider  *fakeProvider
}

// newRolloutFleet creates the classes a, b and c, and n running machines of class a.
func newRolloutFleet(t testing.TB, n int32) *rolloutFleet {
	t.Helper()
	f := &rolloutFleet{TB: t, api: env.Client(t), namespace: env.Namespace(t)}
	f.provider = &fakeProvider{api: f.api, namespace: f.namespace, blocked: map[string]bool{}, broken: map[string]bool{}}
	env.Manager(t, func(ctx context.Context, mgr manager.Manager) error {
		if err := index.RegisterMachines(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		if err := index.RegisterSets(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		recorder := &events.FakeRecorder{}
		sets := machineset.New(machineset.Options{Client: mgr.GetClient(), LiveReader: mgr.GetAPIReader(), Recorder: recorder,
			Clock: clock.RealClock{}})
		deployments := machinedeployment.New(machinedeployment.Options{Client: mgr.GetClient(),
			LiveReader: mgr.GetAPIReader(),
			Recorder:   recorder, Clock: clock.RealClock{}})
		if err := sets.Register(mgr); err != nil {
			return err
		}
		if err := deployments.Register(mgr); err != nil {
			return err
		}
		return builder.ControllerManagedBy(mgr).Named("player").For(&v1beta1.Machine{}).Complete(f.provider)
	})
	for _, class := range []string{"a", "b", "c"} {
		f.must(f.api.Create(context.Background(), &v1beta1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: class},
			Spec: v1beta1.MachineClassSpec{Provider: "fake",
				ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Size"}`)}},
		}))
	}
	f.must(f.api.Create(context.Background(), &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "web"},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: ptr.To(n),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "a"}},
			},
		},
	}))
	f.run("rollout", "status", "md/web").succeeds(t)
	return f
}

func (f *rolloutFleet) run(args ...string) outcome {
	f.Helper()
	return execute(f, append(args, "-n", f.namespace)...)
}

func (f *rolloutFleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *rolloutFleet) deployment() *v1beta1.MachineDeployment {
	f.Helper()
	d := &v1beta1.MachineDeployment{}
	f.must(f.api.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: "web"}, d))
	return d
}

func (f *rolloutFleet) change(change func(*v1beta1.MachineDeployment)) {
	f.Helper()
	d := f.deployment()
	was := d.DeepCopy()
	change(d)
	f.must(f.api.Patch(context.Background(), d, client.MergeFrom(was)))
}

func (f *rolloutFleet) roll(class string) {
	f.Helper()
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = class })
}

// machines returns the names of the machines by class, except those that are being deleted.
func (f *rolloutFleet) machines() map[string][]string {
	f.Helper()
	list := &v1beta1.MachineList{}
	f.must(f.api.List(context.Background(), list, client.InNamespace(f.namespace)))
	names := map[string][]string{}
	for _, m := range list.Items {
		if m.DeletionTimestamp.IsZero() {
			names[m.Spec.ClassRef.Name] = append(names[m.Spec.ClassRef.Name], m.Name)
		}
	}
	return names
}

func (f *rolloutFleet) await(what string, done func(*v1beta1.MachineDeployment) bool) {
	f.Helper()
	env.Await(f, f.api, &v1beta1.MachineDeploymentList{}, what, func(l *v1beta1.MachineDeploymentList) (bool, string) {
		return len(l.Items) == 1 && done(&l.Items[0]), fmt.Sprintf("%+v", l.Items)
	}, client.InNamespace(f.namespace))
}

// fakeProvider acts as the provider. Machines of a blocked class do not become Running. Machines of a broken class
// fail.
type fakeProvider struct {
	api             client.Client
	namespace       string
	mu              sync.Mutex
	blocked, broken map[string]bool
}

func (p *fakeProvider) set(classes map[string]bool, class string, value bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	classes[class] = value
}

func (p *fakeProvider) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := &v1beta1.Machine{}
	if err := p.api.Get(ctx, req.NamespacedName, m); err != nil || m.Namespace != p.namespace {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	was := m.DeepCopy()
	if !m.DeletionTimestamp.IsZero() {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == v1beta1.MachineFinalizer })
		return reconcile.Result{}, client.IgnoreNotFound(p.api.Patch(ctx, m, client.MergeFrom(was)))
	}
	p.mu.Lock()
	blocked, broken := p.blocked[m.Spec.ClassRef.Name], p.broken[m.Spec.ClassRef.Name]
	p.mu.Unlock()
	switch {
	case blocked || m.Status.Phase == v1beta1.MachineRunning || m.Status.Phase == v1beta1.MachineFailed:
		return reconcile.Result{}, nil
	case broken:
		m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineFailed, v1beta1.FailureCreateError, "no such size"
		return reconcile.Result{}, client.IgnoreNotFound(p.api.Status().Patch(ctx, m, client.MergeFrom(was)))
	}
	m.Spec.ProviderID = "sim:///" + m.Name
	if err := p.api.Patch(ctx, m, client.MergeFrom(was)); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	was = m.DeepCopy()
	m.Status.Phase = v1beta1.MachineRunning
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionReady,
		Status: metav1.ConditionTrue, Reason: v1beta1.ReasonMachineReady})
	return reconcile.Result{}, client.IgnoreNotFound(p.api.Status().Patch(ctx, m, client.MergeFrom(was)))
}
