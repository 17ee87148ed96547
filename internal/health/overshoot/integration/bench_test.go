package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

var limits = overshoot.Limits{Tolerance: 2, Hysteresis: 1, Period: time.Minute}

type bench struct {
	testing.TB
	admin     client.WithWatch
	namespace string
	clock     *testclock.FakeClock
	events    *events.FakeRecorder
	frozen    *prometheus.GaugeVec

	sets        *machineset.Reconciler
	deployments *machinedeployment.Reconciler
	overshoot   *overshoot.Reconciler

	stale []v1beta1.Machine
	// beforeWrite runs before each write of the overshoot controller. liveLists counts its live lists of machines.
	beforeWrite func() error
	writes      int
	liveLists   int
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{TB: t, admin: env.Client(t), namespace: env.Namespace(t), events: events.NewFakeRecorder(1000)}
	b.clock = testclock.NewFakeClock(time.Now().Truncate(time.Second))
	frozen, err := reachability.FrozenMetric(prometheus.NewRegistry())
	b.must(err)
	b.frozen = frozen
	cached, quiet := b.cached(), events.NewFakeRecorder(100000)
	b.sets = machineset.New(machineset.Options{
		Client: cached, LiveReader: b.admin, Recorder: quiet, Clock: b.clock,
		MachineCacheVersion: func() string { return "999999999999" }, // A client that reads at the API server is never stale.
	})
	b.deployments = machinedeployment.New(machinedeployment.Options{Client: cached, LiveReader: b.admin, Recorder: quiet,
		Clock: b.clock})
	b.restart()
	return b
}

func (b *bench) restart() {
	live := interceptor.NewClient(b.admin, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, machines := list.(*metav1.PartialObjectMetadataList); machines {
				b.liveLists++
			}
			return c.List(ctx, list, options...)
		},
	})
	b.overshoot = overshoot.New(overshoot.Options{
		Client: b.counted(), LiveReader: live, Recorder: b.events, Clock: b.clock, Limits: limits, FrozenGauge: b.frozen,
	})
}

func (b *bench) cached() client.WithWatch {
	return interceptor.NewClient(b.admin, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			all := (&client.ListOptions{}).ApplyOptions(options)
			if err := c.List(ctx, list, client.InNamespace(all.Namespace)); err != nil {
				return err
			}
			if machines, ok := list.(*v1beta1.MachineList); ok {
				machines.Items = append(machines.Items, b.stale...)
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return err
			}
			return meta.SetList(list, slices.DeleteFunc(items, func(o runtime.Object) bool {
				return !matches(o.(client.Object), all)
			}))
		},
	})
}

func matches(o client.Object, all *client.ListOptions) bool {
	if all.FieldSelector == nil {
		return true
	}
	r, owner := all.FieldSelector.Requirements()[0], metav1.GetControllerOf(o)
	switch r.Field {
	case index.MachineByOwner, index.MachineSetByOwner:
		return owner != nil && string(owner.UID) == r.Value
	case "machine.orphan":
		return owner == nil
	}
	panic("no index " + r.Field)
}

func (b *bench) counted() client.Client {
	write := func() error {
		b.writes++
		if b.beforeWrite != nil {
			return b.beforeWrite()
		}
		return nil
	}
	return interceptor.NewClient(b.cached(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		},
	})
}

func (b *bench) failWrite(nth int) {
	b.writes = 0
	b.beforeWrite = func() error {
		if b.writes == nth {
			return apierrors.NewConflict(schema.GroupResource{}, "", nil)
		}
		return nil
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) ctx() context.Context { return context.Background() }

func (b *bench) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: b.namespace, Name: name}
}

func template() v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{
		ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers"}},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}},
	}
}

func (b *bench) newSet(replicas int32, change ...func(*v1beta1.MachineSet)) {
	b.Helper()
	set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "workers"}}
	set.Spec.Replicas = &replicas
	set.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	set.Spec.Template = template()
	for _, f := range change {
		f(set)
	}
	b.must(b.admin.Create(b.ctx(), set))
	b.setPass("workers")
	b.check("MachineSet/workers")
}

func (b *bench) newDeployment(replicas int32) {
	b.Helper()
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web"}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	d.Spec.Template = template()
	b.must(b.admin.Create(b.ctx(), d))
	b.check("MachineDeployment/web")
	b.deploymentPass()
	for _, set := range b.allSets() {
		b.setPass(set.Name)
	}
	b.deploymentPass()
}

func (b *bench) setPass(name string) {
	b.Helper()
	_, err := b.sets.Reconcile(b.ctx(), reconcile.Request{NamespacedName: b.key(name)})
	b.must(err)
}

func (b *bench) deploymentPass() {
	b.Helper()
	_, err := b.deployments.Reconcile(b.ctx(), reconcile.Request{NamespacedName: b.key("web")})
	b.must(err)
}

func (b *bench) check(fleet string) time.Duration {
	b.Helper()
	b.clock.Step(time.Second)
	result, err := b.overshoot.Reconcile(b.ctx(), reconcile.Request{NamespacedName: b.key(fleet)})
	b.must(err)
	return result.RequeueAfter
}

func (b *bench) set(name string) *v1beta1.MachineSet {
	b.Helper()
	set := &v1beta1.MachineSet{}
	b.must(b.admin.Get(b.ctx(), b.key(name), set))
	return set
}

func (b *bench) deployment() *v1beta1.MachineDeployment {
	b.Helper()
	d := &v1beta1.MachineDeployment{}
	b.must(b.admin.Get(b.ctx(), b.key("web"), d))
	return d
}

func (b *bench) allSets() []v1beta1.MachineSet {
	b.Helper()
	list := &v1beta1.MachineSetList{}
	b.must(b.admin.List(b.ctx(), list, client.InNamespace(b.namespace)))
	return list.Items
}

func (b *bench) change(o client.Object, f func()) {
	b.Helper()
	was := o.DeepCopyObject().(client.Object)
	f()
	b.must(b.admin.Patch(b.ctx(), o, client.MergeFrom(was)))
}

func (b *bench) others(set *v1beta1.MachineSet, n int, change ...func(*v1beta1.Machine)) (all []*v1beta1.Machine) {
	b.Helper()
	for range n {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, GenerateName: "other-"}}
		m.Labels = map[string]string{"pool": "workers"}
		for key, value := range set.Spec.Selector.MatchLabels {
			m.Labels[key] = value
		}
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
			v1beta1.GroupVersion.WithKind("MachineSet"))}
		m.Spec = *set.Spec.Template.Spec.DeepCopy()
		for _, f := range change {
			f(m)
		}
		b.must(b.admin.Create(b.ctx(), m))
		all = append(all, m)
	}
	return all
}

func (b *bench) live() []v1beta1.Machine {
	b.Helper()
	list := &v1beta1.MachineList{}
	b.must(b.admin.List(b.ctx(), list, client.InNamespace(b.namespace)))
	return slices.DeleteFunc(list.Items, func(m v1beta1.Machine) bool { return m.DeletionTimestamp != nil })
}

func (b *bench) wantLive(n int) {
	b.Helper()
	if got := b.live(); len(got) != n {
		b.Fatalf("%d live machines, want %d", len(got), n)
	}
}

func (b *bench) wantFrozen(o client.Object, conditions []metav1.Condition) {
	b.Helper()
	c := meta.FindStatusCondition(conditions, v1beta1.ConditionFrozen)
	if o.GetLabels()[v1beta1.LabelFreeze] != v1beta1.ReasonOvershoot ||
		c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1beta1.ReasonOvershoot {
		b.Fatalf("%T %s is not frozen: labels %v, condition %+v", o, o.GetName(), o.GetLabels(), c)
	}
}

func (b *bench) wantNoLabel(o client.Object) {
	b.Helper()
	if value, frozen := o.GetLabels()[v1beta1.LabelFreeze]; frozen {
		b.Fatalf("%T %s is frozen: %s", o, o.GetName(), value)
	}
}

func (b *bench) wantMetric(want float64) {
	b.Helper()
	if got := testutil.ToFloat64(b.frozen.WithLabelValues(v1beta1.ReasonOvershoot)); got != want {
		b.Fatalf("machinist_frozen is %v, want %v", got, want)
	}
}

func (b *bench) wantEvents(want ...string) {
	b.Helper()
	var got []string
	for len(b.events.Events) > 0 {
		got = append(got, <-b.events.Events)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("events %q, want %q", got, want)
	}
}
