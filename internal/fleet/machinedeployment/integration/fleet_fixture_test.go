package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

type fleet struct {
	testing.TB
	ctx       context.Context
	api       client.WithWatch
	namespace string
	provider  *provider
	guard     *guard
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{TB: t, ctx: context.Background(), api: env.Client(t), namespace: env.Namespace(t)}
	f.provider = &provider{api: f.api, pending: map[string]bool{}, broken: map[string]bool{}, refused: map[string]bool{}}
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
		if err := sets.Register(mgr); err != nil {
			return err
		}
		deployments := machinedeployment.New(machinedeployment.Options{Client: mgr.GetClient(),
			LiveReader: mgr.GetAPIReader(),
			Recorder:   recorder, Clock: clock.RealClock{}})
		if err := deployments.Register(mgr); err != nil {
			return err
		}
		return f.provider.register(mgr)
	})
	return f
}

// provider simulates a provider. Machines of a pending class wait for letGo, and machines of a broken class fail.
type provider struct {
	api             client.Client
	mu              sync.Mutex
	pending, broken map[string]bool
	refused         map[string]bool
}

func (p *provider) register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("player").For(&v1beta1.Machine{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 16}).Complete(p)
}

func (p *provider) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := &v1beta1.Machine{}
	if err := p.api.Get(ctx, req.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	was := m.DeepCopy()
	if !m.DeletionTimestamp.IsZero() {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == v1beta1.MachineFinalizer })
		return reconcile.Result{}, client.IgnoreNotFound(p.api.Patch(ctx, m, client.MergeFrom(was)))
	}
	p.mu.Lock()
	pending, broken, refused := p.pending[m.Spec.ClassRef.Name], p.broken[m.Spec.ClassRef.Name], p.refused[m.Spec.ClassRef.Name]
	p.mu.Unlock()
	switch {
	case p.update(m, refused):
		return reconcile.Result{},
			client.IgnoreNotFound(p.api.Status().Patch(ctx, m,
				client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})))
	case pending || m.Status.Phase == v1beta1.MachineRunning || m.Status.Phase == v1beta1.MachineFailed:
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
	m.Status.Phase, m.Status.Applied = v1beta1.MachineRunning, &v1beta1.AppliedStatus{ClassName: m.Spec.ClassRef.Name}
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionReady,
		Status: metav1.ConditionTrue, Reason: v1beta1.ReasonMachineReady})
	return reconcile.Result{}, client.IgnoreNotFound(p.api.Status().Patch(ctx, m, client.MergeFrom(was)))
}

func (p *provider) update(m *v1beta1.Machine, refused bool) bool {
	if m.Status.Applied == nil {
		return false
	}
	setCondition := func(kind, reason string, status metav1.ConditionStatus) bool {
		return meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			ObservedGeneration: m.Generation})
	}
	updated := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	switch {
	case m.Status.Applied.ClassName == m.Spec.ClassRef.Name:
		changed := setCondition(v1beta1.ConditionUpToDate, v1beta1.ReasonUpToDate, metav1.ConditionTrue)
		return setCondition(v1beta1.ConditionReady, v1beta1.ReasonMachineReady, metav1.ConditionTrue) || changed
	case refused:
		return setCondition(v1beta1.ConditionUpToDate, v1beta1.ReasonUnsupportedChange, metav1.ConditionFalse)
	case updated != nil && updated.Reason == v1beta1.ReasonUpdating:
		m.Status.Applied.ClassName = m.Spec.ClassRef.Name
		setCondition(v1beta1.ConditionUpToDate, v1beta1.ReasonUpToDate, metav1.ConditionTrue)
		return setCondition(v1beta1.ConditionReady, v1beta1.ReasonMachineReady, metav1.ConditionTrue)
	}
	setCondition(v1beta1.ConditionUpToDate, v1beta1.ReasonUpdating, metav1.ConditionFalse)
	return setCondition(v1beta1.ConditionReady, v1beta1.ReasonUpdating, metav1.ConditionFalse)
}

func (f *fleet) keepPending(class string) {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	f.provider.pending[class] = true
}

func (f *fleet) letGo(class string) {
	f.Helper()
	f.provider.mu.Lock()
	delete(f.provider.pending, class)
	f.provider.mu.Unlock()
	for _, m := range f.machines() {
		if m.Spec.ClassRef.Name == class {
			_, err := f.provider.Reconcile(f.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&m)})
			f.must(err)
		}
	}
}

func (f *fleet) breakClass(class string) {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	f.provider.broken[class] = true
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func deployment(namespace string, replicas int32,
	options ...func(*v1beta1.MachineDeployment)) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "a"}},
			},
		},
	}
	for _, o := range options {
		o(d)
	}
	return d
}

func (f *fleet) create(replicas int32, options ...func(*v1beta1.MachineDeployment)) {
	f.Helper()
	f.must(f.api.Create(f.ctx, deployment(f.namespace, replicas, options...)))
}

func (f *fleet) change(change func(*v1beta1.MachineDeployment)) {
	f.Helper()
	d := &v1beta1.MachineDeployment{}
	f.must(f.api.Get(f.ctx, types.NamespacedName{Namespace: f.namespace, Name: "web"}, d))
	was := d.DeepCopy()
	change(d)
	f.must(f.api.Patch(f.ctx, d, client.MergeFrom(was)))
}

func (f *fleet) roll(class string) {
	f.Helper()
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = class })
}

func (f *fleet) scale(replicas int32) {
	f.Helper()
	f.change(func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = &replicas })
}

func (f *fleet) machines() []v1beta1.Machine {
	f.Helper()
	list := &v1beta1.MachineList{}
	f.must(f.api.List(f.ctx, list, client.InNamespace(f.namespace)))
	return list.Items
}

func (f *fleet) sets() map[string]*v1beta1.MachineSet {
	f.Helper()
	list := &v1beta1.MachineSetList{}
	f.must(f.api.List(f.ctx, list, client.InNamespace(f.namespace)))
	sets := map[string]*v1beta1.MachineSet{}
	for i := range list.Items {
		sets[list.Items[i].Spec.Template.Spec.ClassRef.Name] = &list.Items[i]
	}
	return sets
}

func (f *fleet) awaitDeployment(what string, done func(*v1beta1.MachineDeployment) bool) *v1beta1.MachineDeployment {
	f.Helper()
	var found *v1beta1.MachineDeployment
	env.Await(f, f.api, &v1beta1.MachineDeploymentList{}, what, func(l *v1beta1.MachineDeploymentList) (bool, string) {
		for i := range l.Items {
			if d := &l.Items[i]; d.Name == "web" {
				if d.Status.ObservedGeneration == d.Generation && done(d) {
					found = d
					return true, ""
				}
				return false, fmt.Sprintf("%+v", d.Status)
			}
		}
		return false, "no deployment"
	}, client.InNamespace(f.namespace))
	return found
}

func (f *fleet) awaitComplete(class string, replicas int32) *v1beta1.MachineDeployment {
	f.Helper()
	d := f.awaitDeployment(fmt.Sprintf("%d machines of class %s", replicas, class),
		func(d *v1beta1.MachineDeployment) bool {
			return d.Status.UpdatedReplicas == replicas && d.Status.Replicas == replicas &&
				d.Status.AvailableReplicas == replicas &&
				reasonOf(d, v1beta1.ConditionProgressing) == v1beta1.ReasonNewMachineSetAvailable &&
				d.Spec.Template.Spec.ClassRef.Name == class
		})
	f.awaitMachines(class, replicas)
	return d
}

func (f *fleet) awaitMachines(class string, replicas int32) {
	f.Helper()
	env.Await(f, f.api, &v1beta1.MachineList{}, fmt.Sprintf("nothing but %d machines of class %s", replicas, class),
		func(l *v1beta1.MachineList) (bool, string) {
			byClass := countByClass(l.Items)
			return len(l.Items) == int(replicas) && byClass[class] == int(replicas), fmt.Sprint(byClass)
		}, client.InNamespace(f.namespace))
}

func (f *fleet) awaitClasses(want map[string]int) {
	f.Helper()
	env.Await(f, f.api, &v1beta1.MachineList{}, fmt.Sprint(want), func(l *v1beta1.MachineList) (bool, string) {
		byClass := countByClass(l.Items)
		return fmt.Sprint(byClass) == fmt.Sprint(want), fmt.Sprint(byClass)
	}, client.InNamespace(f.namespace))
}

func countByClass(items []v1beta1.Machine) map[string]int {
	n := map[string]int{}
	for _, m := range items {
		n[m.Spec.ClassRef.Name]++
	}
	return n
}

func reasonOf(d *v1beta1.MachineDeployment, condition string) string {
	if c := meta.FindStatusCondition(d.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// guard watches the machines and records when too many are live or too few are available.
type guard struct {
	mu       sync.Mutex
	machines map[string]*v1beta1.Machine
	rule     func(live, available int, byClass map[string]int) string
	broken   []string
	made     int
	seen     chan struct{}
	stop     func()
}

func (f *fleet) watchOver(rule func(live, available int, byClass map[string]int) string) {
	f.Helper()
	if f.guard != nil {
		f.guard.stop()
	}
	g := &guard{machines: map[string]*v1beta1.Machine{}, rule: rule, seen: make(chan struct{}, 1)}
	list := &v1beta1.MachineList{}
	f.must(f.api.List(f.ctx, list, client.InNamespace(f.namespace)))
	for i := range list.Items {
		g.machines[list.Items[i].Name] = &list.Items[i]
	}
	options := &client.ListOptions{Namespace: f.namespace, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	ctx, cancel := context.WithCancel(f.ctx)
	w, err := f.api.Watch(ctx, list, options)
	f.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if m, ok := e.Object.(*v1beta1.Machine); ok {
				g.see(e.Type, m)
				select {
				case g.seen <- struct{}{}:
				default:
				}
			}
		}
	}()
	g.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		for _, b := range slices.Compact(g.broken) {
			f.Error(b)
		}
	})
	f.guard = g
	f.Cleanup(g.stop)
}

// createdMachines returns how many machines were created since the guard started. createdMachines first waits until
// the guard has received the events of all existing machines.
func (f *fleet) createdMachines() int {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, env.Patience)
	defer cancel()
	var names []string
	for _, m := range f.machines() {
		names = append(names, m.Name)
	}
	for {
		f.guard.mu.Lock()
		made, missing := f.guard.made, slices.ContainsFunc(names, func(name string) bool {
			return f.guard.machines[name] == nil
		})
		f.guard.mu.Unlock()
		if !missing {
			return made
		}
		select {
		case <-f.guard.seen:
		case <-ctx.Done():
			f.Fatalf("the guard has not seen all of %v", names)
		}
	}
}

func (g *guard) see(kind watch.EventType, m *v1beta1.Machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch kind {
	case watch.Added:
		g.made++
		g.machines[m.Name] = m
	case watch.Modified:
		g.machines[m.Name] = m
	case watch.Deleted:
		delete(g.machines, m.Name)
	}
	live, available := 0, 0
	byClass := map[string]int{}
	for _, m := range g.machines {
		byClass[m.Spec.ClassRef.Name]++
		if m.DeletionTimestamp.IsZero() {
			live++
			if meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
				available++
			}
		}
	}
	if wrong := g.rule(live, available, byClass); wrong != "" {
		g.broken = append(g.broken, fmt.Sprintf("%s (%d live, %d available, %v)", wrong, live, available, byClass))
	}
}

func within(most, fewest int) func(live, available int, byClass map[string]int) string {
	return func(live, available int, _ map[string]int) string {
		switch {
		case live > most:
			return fmt.Sprintf("more than %d machines are live", most)
		case available < fewest:
			return fmt.Sprintf("fewer than %d machines are available", fewest)
		}
		return ""
	}
}
