package integration

import (
	"context"
	"fmt"
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
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
)

// bench is a namespace with deployments. Tests call reconcile and simulate the controllers of the sets.
type bench struct {
	testing.TB
	ctx       context.Context
	api       client.WithWatch
	namespace string
	clock     *clocktesting.FakePassiveClock
	events    *recorded
	hooks     hooks
	options   machinedeployment.Options
	r         *machinedeployment.Reconciler

	mu    sync.Mutex
	calls []string
}

type hooks struct {
	deployment   func(*v1beta1.MachineDeployment)
	sets         func(*v1beta1.MachineSetList)
	machines     func(*v1beta1.MachineList)
	beforeCreate func(*v1beta1.MachineSet)
	beforePatch  func(*v1beta1.MachineSet)
	afterPatch   func(error) error
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{TB: t, ctx: context.Background(), api: env.Client(t), namespace: env.Namespace(t),
		clock: clocktesting.NewFakePassiveClock(time.Now()), events: &recorded{}}
	b.options = machinedeployment.Options{Client: b.cached(), LiveReader: b.live(), Recorder: b.events, Clock: b.clock}
	b.restart()
	return b
}

func (b *bench) restart() { b.r = machinedeployment.New(b.options) }

func (b *bench) called(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *bench) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *bench) wantCalls(want ...string) {
	b.Helper()
	if got := b.took(); !slices.Equal(got, want) {
		b.Errorf("calls were\n  %s\nexpected\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func kind(o any) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1beta1.")
}

func (b *bench) live() client.Reader {
	return interceptor.NewClient(b.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			b.called("live get %s", kind(o))
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			b.called("live list %s", kind(list))
			return c.List(ctx, list, options...)
		},
	})
}

// cached returns a client that simulates a cache. The method reads from the API server, supports indexes, applies
// hooks and records writes.
func (b *bench) cached() client.Client {
	return interceptor.NewClient(b.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			_ ...client.GetOption) error {
			err := c.Get(ctx, key, o)
			if d, ok := o.(*v1beta1.MachineDeployment); ok && client.IgnoreNotFound(err) == nil && b.hooks.deployment != nil {
				b.hooks.deployment(d) // The cache may still contain the deployment.
				return nil
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			all := (&client.ListOptions{}).ApplyOptions(options)
			if err := c.List(ctx, list, client.InNamespace(all.Namespace),
				client.MatchingLabelsSelector{Selector: all.LabelSelector}); err != nil {
				return err
			}
			switch l := list.(type) {
			case *v1beta1.MachineSetList:
				if b.hooks.sets != nil {
					b.hooks.sets(l)
				}
			case *v1beta1.MachineList:
				if b.hooks.machines != nil {
					b.hooks.machines(l)
				}
			}
			return filter(list, all.FieldSelector)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			b.called("create %s", kind(o))
			if set, ok := o.(*v1beta1.MachineSet); ok && b.hooks.beforeCreate != nil {
				b.hooks.beforeCreate(set)
			}
			return c.Create(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			b.called("delete %s", kind(o))
			return c.Delete(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			b.called("patch %s", kind(o))
			if b.hooks.beforePatch != nil {
				b.hooks.beforePatch(o.(*v1beta1.MachineSet))
			}
			err := c.Patch(ctx, o, patch, options...)
			if b.hooks.afterPatch != nil {
				err = b.hooks.afterPatch(err)
			}
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			b.called("patch %s of %s", subresource, kind(o))
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		},
	})
}

func filter(list client.ObjectList, selector fields.Selector) error {
	if selector == nil || selector.Empty() {
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	r := selector.Requirements()[0]
	return meta.SetList(list, slices.DeleteFunc(items, func(o runtime.Object) bool {
		owner := metav1.GetControllerOf(o.(client.Object))
		switch r.Field {
		case index.MachineByOwner, index.MachineSetByOwner:
			return owner == nil || string(owner.UID) != r.Value
		case "machine.orphan":
			return owner != nil
		}
		panic("there is no index " + r.Field)
	}))
}

type recorded struct{ notes []string }

func (r *recorded) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf("%s %s ", kind, reason)+fmt.Sprintf(note, args...))
}

func (r *recorded) took() []string {
	var reasons []string
	for _, note := range r.notes {
		reasons = append(reasons, strings.Fields(note)[1])
	}
	r.notes = nil
	return reasons
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) create(replicas int32, options ...func(*v1beta1.MachineDeployment)) {
	b.Helper()
	b.must(b.api.Create(b.ctx, deployment(b.namespace, replicas, options...)))
}

func (b *bench) deployment() *v1beta1.MachineDeployment {
	b.Helper()
	d := &v1beta1.MachineDeployment{}
	b.must(b.api.Get(b.ctx, types.NamespacedName{Namespace: b.namespace, Name: "web"}, d))
	return d
}

func (b *bench) change(change func(*v1beta1.MachineDeployment)) {
	b.Helper()
	d := b.deployment()
	was := d.DeepCopy()
	change(d)
	b.must(b.api.Patch(b.ctx, d, client.MergeFrom(was)))
}

// reconcile advances the clock by more than the debounce time, and then runs one pass.
func (b *bench) reconcile() reconcile.Result {
	b.Helper()
	result, err := b.try("web")
	b.must(err)
	return result
}

func (b *bench) try(name string) (reconcile.Result, error) {
	b.pass(time.Second)
	return b.r.Reconcile(b.ctx,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: b.namespace, Name: name}})
}

func (b *bench) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

func (b *bench) sets() map[string]*v1beta1.MachineSet {
	b.Helper()
	list := &v1beta1.MachineSetList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace)))
	sets := map[string]*v1beta1.MachineSet{}
	for i := range list.Items {
		sets[list.Items[i].Spec.Template.Spec.ClassRef.Name] = &list.Items[i]
	}
	return sets
}

func (b *bench) changeSet(class string, change func(*v1beta1.MachineSet)) {
	b.Helper()
	set := b.sets()[class]
	was := set.DeepCopy()
	change(set)
	b.must(b.api.Patch(b.ctx, set, client.MergeFrom(was)))
}

func (b *bench) replicas() map[string]int32 {
	b.Helper()
	replicas := map[string]int32{}
	for class, set := range b.sets() {
		replicas[class] = set.ReplicasOrDefault()
	}
	return replicas
}

func (b *bench) wantReplicas(want map[string]int32) {
	b.Helper()
	if got := b.replicas(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.Fatalf("replicas are %v, expected %v; Progressing: %+v", got, want,
			meta.FindStatusCondition(b.deployment().Status.Conditions, v1beta1.ConditionProgressing))
	}
}

func (b *bench) play() {
	b.Helper()
	for _, set := range b.sets() {
		b.playSet(set, func(m *v1beta1.Machine) {
			m.Status.Phase = v1beta1.MachineRunning
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionReady,
				Status: metav1.ConditionTrue,
				Reason: v1beta1.ReasonMachineReady, LastTransitionTime: metav1.NewTime(b.clock.Now())})
		})
	}
}

// playSet simulates the controller of a set: it creates or deletes machines until their number equals spec.replicas.
// The caller's function sets the state of each new machine.
func (b *bench) playSet(set *v1beta1.MachineSet, setState func(*v1beta1.Machine)) {
	b.Helper()
	list := &v1beta1.MachineList{}
	b.must(b.api.List(b.ctx, list, client.InNamespace(b.namespace),
		client.MatchingLabels{v1beta1.LabelMachineSet: set.Name}))
	for n := len(list.Items); n > int(set.ReplicasOrDefault()); n-- {
		b.must(b.api.Delete(b.ctx, &list.Items[n-1]))
		list.Items = list.Items[:n-1]
	}
	for n := len(list.Items); n < int(set.ReplicasOrDefault()); n++ {
		m := &v1beta1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, GenerateName: set.Name +
				"-", Labels: set.Spec.Template.ObjectMeta.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
					v1beta1.GroupVersion.WithKind("MachineSet"))}},
			Spec: set.Spec.Template.Spec,
		}
		m.Labels[v1beta1.LabelMachineSet] = set.Name
		b.must(b.api.Create(b.ctx, m))
		list.Items = append(list.Items, *m)
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.Status.Phase == "" {
			was := m.DeepCopy()
			setState(m)
			b.must(b.api.Status().Patch(b.ctx, m, client.MergeFrom(was)))
		}
	}
	was := set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.Replicas = set.Generation, set.ReplicasOrDefault()
	b.must(b.api.Status().Patch(b.ctx, set, client.MergeFrom(was)))
}

func (b *bench) settle() {
	b.Helper()
	for range 100 {
		b.took()
		b.reconcile()
		if len(b.took()) == 0 {
			return
		}
		b.play()
	}
	b.Fatalf("the deployment does not come to rest: %+v", b.deployment().Status)
}

func (b *bench) wantCondition(kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	b.Helper()
	c := meta.FindStatusCondition(b.deployment().Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		b.Fatalf("condition %s is %+v, expected %s %s", kind, c, status, reason)
	}
	return c
}

func class(name string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = name }
}

func replicas(n int32) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = ptr.To(n) }
}
