package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

type bench struct {
	testing.TB
	ctx       context.Context
	admin     client.WithWatch
	namespace string
	clock     *clocktesting.FakePassiveClock
	events    *events

	hooks   hooks
	options machineset.Options
	r       *machineset.Reconciler

	mu    sync.Mutex
	calls []string
}

// hooks intercept calls. Without a hook, a call goes to the API server.
type hooks struct {
	create     func(c client.Client, m *v1beta1.Machine) error
	delete     func(c client.Client, m *v1beta1.Machine, options ...client.DeleteOption) error
	machines   func(list *v1beta1.MachineList)
	seen       func() string
	set        func(set *v1beta1.MachineSet)
	deployment func(d *v1beta1.MachineDeployment)
}

func newBench(t testing.TB) *bench {
	b := &bench{TB: t, ctx: context.Background(), admin: env.Client(t), namespace: env.Namespace(t),
		clock: clocktesting.NewFakePassiveClock(time.Now()), events: &events{}}
	b.options = machineset.Options{Client: b.cached(), LiveReader: b.live(), Recorder: b.events, Clock: b.clock,
		MachineCacheVersion: func() string {
			if b.hooks.seen != nil {
				return b.hooks.seen()
			}
			return "999999999999" // The API server itself is always up to date.
		}}
	b.restart()
	return b
}

func (b *bench) restart() { b.r = machineset.New(b.options) }

func (b *bench) called(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *bench) took() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for _, call := range b.calls {
		counts[call]++
	}
	b.calls = nil
	return counts
}

func (b *bench) live() client.Reader {
	return interceptor.NewClient(b.admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			b.called("live get %T", o)
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			raw := (&client.ListOptions{}).ApplyOptions(options).Raw
			b.called("live list %T%s", list, func() string {
				if raw != nil {
					return " " + string(raw.ResourceVersionMatch)
				}
				return ""
			}())
			return c.List(ctx, list, options...)
		},
	})
}

// cached returns a client that simulates a cache. The method reads from the API server, supports indexes and applies
// the hooks.
func (b *bench) cached() client.Client {
	return interceptor.NewClient(b.admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			err := c.Get(ctx, key, o)
			if set, ok := o.(*v1beta1.MachineSet); ok && err == nil && b.hooks.set != nil {
				b.hooks.set(set)
			}
			if d, ok := o.(*v1beta1.MachineDeployment); ok && err == nil && b.hooks.deployment != nil {
				b.hooks.deployment(d)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			all := (&client.ListOptions{}).ApplyOptions(options)
			selector := all.FieldSelector
			if err := c.List(ctx, list, client.InNamespace(all.Namespace)); err != nil {
				return err
			}
			if machines, ok := list.(*v1beta1.MachineList); ok && b.hooks.machines != nil {
				b.hooks.machines(machines)
			}
			return filter(list, selector)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			b.called("create")
			if b.hooks.create != nil {
				return b.hooks.create(c, o.(*v1beta1.Machine))
			}
			return c.Create(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			b.called("delete")
			if b.hooks.delete != nil {
				return b.hooks.delete(c, o.(*v1beta1.Machine), options...)
			}
			return c.Delete(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			b.called("patch")
			return c.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			b.called("patch %s", subresource)
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		},
	})
}

func filter(list client.ObjectList, selector fields.Selector) error {
	if selector == nil {
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	r := selector.Requirements()[0]
	matching := slices.DeleteFunc(items, func(o runtime.Object) bool {
		owner := metav1.GetControllerOf(o.(client.Object))
		switch r.Field {
		case index.MachineByOwner, index.MachineSetByOwner:
			return owner == nil || string(owner.UID) != r.Value
		case "machine.orphan":
			return owner != nil
		}
		panic("no index " + r.Field)
	})
	return meta.SetList(list, matching)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) newSet(replicas int32, options ...func(*v1beta1.MachineSet)) *v1beta1.MachineSet {
	b.Helper()
	set := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "workers"},
		Spec: v1beta1.MachineSetSpec{
			Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}},
			},
			DeletePolicy: v1beta1.DeleteOldest,
		},
	}
	for _, o := range options {
		o(set)
	}
	b.must(b.admin.Create(b.ctx, set))
	return set
}

func (b *bench) reconcile() reconcile.Result {
	b.Helper()
	result, err := b.try()
	b.must(err)
	return result
}

func (b *bench) try() (reconcile.Result, error) {
	return b.r.Reconcile(b.ctx,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: "workers"}})
}

func (b *bench) set() *v1beta1.MachineSet {
	b.Helper()
	set := &v1beta1.MachineSet{}
	b.must(b.admin.Get(b.ctx, types.NamespacedName{Namespace: b.namespace, Name: "workers"}, set))
	return set
}

func (b *bench) changeSet(change func(*v1beta1.MachineSet)) {
	b.Helper()
	set := b.set()
	was := set.DeepCopy()
	change(set)
	b.must(b.admin.Patch(b.ctx, set, client.MergeFrom(was)))
}

func (b *bench) scale(replicas int32) {
	b.Helper()
	b.changeSet(func(s *v1beta1.MachineSet) { s.Spec.Replicas = ptr.To(replicas) })
}

func (b *bench) machines() []v1beta1.Machine {
	b.Helper()
	list := &v1beta1.MachineList{}
	b.must(b.admin.List(b.ctx, list, client.InNamespace(b.namespace)))
	slices.SortFunc(list.Items, func(a, b v1beta1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

func (b *bench) lives() []v1beta1.Machine {
	b.Helper()
	set := b.set()
	return slices.DeleteFunc(b.machines(), func(m v1beta1.Machine) bool {
		return !m.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(&m, set)
	})
}

func (b *bench) wantLives(n int) []v1beta1.Machine {
	b.Helper()
	lives := b.lives()
	if len(lives) != n {
		b.Fatalf("%d live machines, want %d", len(lives), n)
	}
	return lives
}

func (b *bench) wantCalls(want map[string]int) {
	b.Helper()
	got := b.took()
	for call, n := range want {
		if got[call] != n {
			b.Errorf("%q: %d times, want %d; all: %v", call, got[call], n, got)
		}
	}
}

func (b *bench) orphan(name string, options ...func(*v1beta1.Machine)) *v1beta1.Machine {
	b.Helper()
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{"pool": "workers"}},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}},
	}
	for _, o := range options {
		o(m)
	}
	b.must(b.admin.Create(b.ctx, m))
	return m
}

func (b *bench) machine(name string) *v1beta1.Machine {
	b.Helper()
	m := &v1beta1.Machine{}
	b.must(b.admin.Get(b.ctx, types.NamespacedName{Namespace: b.namespace, Name: name}, m))
	return m
}

func (b *bench) changeMachine(name string, change func(*v1beta1.Machine)) {
	b.Helper()
	m := b.machine(name)
	was := m.DeepCopy()
	change(m)
	b.must(b.admin.Patch(b.ctx, m, client.MergeFrom(was)))
}

func (b *bench) play(name string, change func(*v1beta1.Machine)) {
	b.Helper()
	m := b.machine(name)
	was := m.DeepCopy()
	change(m)
	b.must(b.admin.Status().Patch(b.ctx, m, client.MergeFrom(was)))
}

func (b *bench) runAll() {
	b.Helper()
	for _, m := range b.lives() {
		if m.Status.Phase != v1beta1.MachineRunning {
			b.changeMachine(m.Name, func(m *v1beta1.Machine) { m.Spec.ProviderID = "sim:///" + m.Name })
			b.play(m.Name, b.running)
		}
	}
}

func (b *bench) condition(m *v1beta1.Machine, condition string, status metav1.ConditionStatus, reason string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason,
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(b.clock.Now())})
}

func (b *bench) running(m *v1beta1.Machine) {
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineRunning, "", ""
	m.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning}
	b.condition(m, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
	b.condition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
}

func (b *bench) failed(m *v1beta1.Machine) {
	m.Status.Phase, m.Status.FailureReason, m.Status.FailureMessage = v1beta1.MachineFailed, v1beta1.FailureJoinClusterTimeout, "no node"
	b.condition(m, v1beta1.ConditionReady, metav1.ConditionFalse, string(v1beta1.FailureJoinClusterTimeout))
}

func (b *bench) lost(m *v1beta1.Machine) {
	b.failed(m)
	m.Status.FailureReason, m.Status.FailureMessage = v1beta1.FailureInstanceVanished, "gone"
	b.condition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonInstanceVanished)
}

// removeFinalizer removes the finalizer of machines, as providers do after they have deleted the instance.
func (b *bench) removeFinalizer(names ...string) {
	b.Helper()
	for _, name := range names {
		b.changeMachine(name, func(m *v1beta1.Machine) { m.Finalizers = nil })
	}
}

func (b *bench) wantCondition(condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	b.Helper()
	c := meta.FindStatusCondition(b.set().Status.Conditions, condition)
	if c == nil || c.Status != status || c.Reason != reason {
		b.Fatalf("condition %s: %+v, want %s with reason %s", condition, c, status, reason)
	}
	return *c
}

type events struct {
	mu       sync.Mutex
	recorded []string
}

func (e *events) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded = append(e.recorded, fmt.Sprintf("%s %s %s: ", kind, reason, action)+fmt.Sprintf(note, args...))
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.recorded)
}
