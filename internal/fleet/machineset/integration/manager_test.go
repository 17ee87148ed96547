package integration

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
)

// The counters include only one namespace, because other tests leave sets behind.
type counted struct {
	client.Client
	live                                       client.Reader
	namespace                                  string
	creates, deletes, patches, statuses, lists atomic.Int64
}

func (c *counted) count(n *atomic.Int64, namespace string) {
	if namespace == c.namespace {
		n.Add(1)
	}
}

func (c *counted) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	c.count(&c.creates, o.GetNamespace())
	return c.Client.Create(ctx, o, options...)
}

func (c *counted) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	c.count(&c.deletes, o.GetNamespace())
	return c.Client.Delete(ctx, o, options...)
}

func (c *counted) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	c.count(&c.patches, o.GetNamespace())
	return c.Client.Patch(ctx, o, patch, options...)
}

func (c *counted) Status() client.SubResourceWriter {
	return &countedStatus{SubResourceWriter: c.Client.Status(), calls: c}
}

type countedStatus struct {
	client.SubResourceWriter
	calls *counted
}

func (c *countedStatus) Patch(ctx context.Context, o client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption) error {
	c.calls.count(&c.calls.statuses, o.GetNamespace())
	return c.SubResourceWriter.Patch(ctx, o, patch, options...)
}

type countedLive struct{ *counted }

func (c countedLive) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	return c.live.Get(ctx, key, o, options...)
}

func (c countedLive) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.count(&c.lists, (&client.ListOptions{}).ApplyOptions(options).Namespace)
	return c.live.List(ctx, list, options...)
}

func controller(b *bench) *counted {
	calls := &counted{namespace: b.namespace}
	env.Manager(b, func(ctx context.Context, mgr manager.Manager) error {
		if err := index.RegisterMachines(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		if err := index.RegisterSets(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		calls.Client, calls.live = mgr.GetClient(), mgr.GetAPIReader()
		return machineset.New(machineset.Options{Client: calls, LiveReader: countedLive{calls}, Recorder: b.events,
			Clock: clock.RealClock{}}).Register(mgr)
	})
	return calls
}

func (b *bench) await(what string, done func([]v1beta1.Machine) bool) []v1beta1.Machine {
	b.Helper()
	list := env.Await(b, b.admin, &v1beta1.MachineList{}, what, func(l *v1beta1.MachineList) (bool, string) {
		return done(l.Items), fmt.Sprintf("%d machines", len(l.Items))
	}, client.InNamespace(b.namespace))
	return list.Items
}

func (b *bench) awaitSet(what string, done func(*v1beta1.MachineSet) bool) {
	b.Helper()
	env.Await(b, b.admin, &v1beta1.MachineSetList{}, what, func(l *v1beta1.MachineSetList) (bool, string) {
		return len(l.Items) == 1 && done(&l.Items[0]), fmt.Sprintf("%+v", l.Items[0].Status)
	}, client.InNamespace(b.namespace))
}

func liveOf(machines []v1beta1.Machine) int {
	n := 0
	for _, m := range machines {
		if m.DeletionTimestamp.IsZero() && metav1.GetControllerOf(&m) != nil {
			n++
		}
	}
	return n
}

// Rule: status-writes-spaced.
func TestAHundredMachinesAreMadeAndDeletedWithFewWrites(t *testing.T) {
	b := newBench(t)
	calls := controller(b)
	b.newSet(100)
	b.await("100 machines", func(l []v1beta1.Machine) bool { return len(l) == 100 })
	b.runAll()
	b.awaitSet("100 available", func(s *v1beta1.MachineSet) bool { return s.Status.AvailableReplicas == 100 })
	if n := calls.creates.Load(); n != 100 {
		t.Errorf("%d creates for 100 machines", n)
	}
	if n := calls.patches.Load() + calls.deletes.Load(); n != 0 {
		t.Errorf("%d writes to machines beside their creation", n)
	}
	up := calls.statuses.Load()
	t.Logf("status writes while 100 machines came up: %d, live lists: %d", up, calls.lists.Load())
	if up > 20 {
		t.Errorf("%d status writes while 100 machines came up, want at most 20", up)
	}

	calls.statuses.Store(0)
	b.scale(0)
	machines := b.await("100 deletions", func(l []v1beta1.Machine) bool { return liveOf(l) == 0 })
	for _, m := range machines {
		b.removeFinalizer(m.Name)
	}
	b.await("none left", func(l []v1beta1.Machine) bool { return len(l) == 0 })
	b.awaitSet("settled", func(s *v1beta1.MachineSet) bool {
		return s.Status.Replicas == 0 && slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1beta1.ConditionScalingDown && c.Status == metav1.ConditionFalse
		})
	})
	t.Logf("status writes while 100 machines went: %d", calls.statuses.Load())
	if n := calls.statuses.Load(); n > 20 {
		t.Errorf("%d status writes while 100 machines went, want at most 20", n)
	}
	if n := calls.deletes.Load(); n != 100 {
		t.Errorf("%d deletes for 100 machines", n)
	}
	if n := calls.lists.Load(); n > 3 {
		t.Errorf("%d live lists in one process that only read its own writes, want few", n)
	}
}

func TestEventsEnqueueTheSet(t *testing.T) {
	b := newBench(t)
	controller(b)
	d := &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "workers"},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "workers"}},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}},
		},
	}
	d.Spec.Remediation.MaxInFlight = ptr.To(intstr.FromInt32(0))
	b.must(b.admin.Create(b.ctx, d))
	b.newSet(3, func(s *v1beta1.MachineSet) {
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d,
			v1beta1.GroupVersion.WithKind("MachineDeployment"))}
	})
	machines := b.await("3 machines", func(l []v1beta1.Machine) bool { return liveOf(l) == 3 })

	b.must(b.admin.Delete(b.ctx, &machines[0]))
	b.await("3 live again", func(l []v1beta1.Machine) bool { return liveOf(l) == 3 && len(l) == 4 })
	b.removeFinalizer(machines[0].Name)

	// A user changes a label, and the set releases the machine. When a machine is missing, the user restores the label.
	b.changeMachine(machines[1].Name, func(m *v1beta1.Machine) { m.Labels["pool"] = "mine" })
	b.await("3 live and one released", func(l []v1beta1.Machine) bool { return liveOf(l) == 3 && len(l) == 4 })
	b.changeMachine(machines[1].Name, func(m *v1beta1.Machine) { m.Labels["pool"] = "workers" })
	b.awaitSet("the orphan to be noticed", func(s *v1beta1.MachineSet) bool {
		return slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1beta1.ConditionAdoptionSkipped && c.Status == metav1.ConditionTrue
		})
	})
	b.scale(4)
	b.await("the orphan to be adopted", func(l []v1beta1.Machine) bool { return liveOf(l) == 4 && len(l) == 4 })

	b.changeMachine(machines[1].Name, func(m *v1beta1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Other", Name: "other", UID: "other",
			Controller: ptr.To(true)}}
	})
	b.await("one more in place of it", func(l []v1beta1.Machine) bool { return len(l) == 5 })
	b.must(b.admin.Delete(b.ctx, b.machine(machines[1].Name)))
	b.removeFinalizer(machines[1].Name)

	b.runAll()
	b.play(machines[2].Name, b.failed)
	b.awaitSet("a failed machine", func(s *v1beta1.MachineSet) bool { return len(s.Status.FailedMachines) == 1 })
	if !b.machine(machines[2].Name).DeletionTimestamp.IsZero() {
		t.Error("replaced a machine without a budget")
	}
	was := d.DeepCopy()
	d.Spec.Remediation.MaxInFlight = ptr.To(intstr.FromInt32(1))
	b.must(b.admin.Patch(b.ctx, d, client.MergeFrom(was)))
	b.await("the failed one to be replaced", func(l []v1beta1.Machine) bool { return liveOf(l) == 4 && len(l) == 5 })
}

// Rule: available-after-min-ready.
func TestAvailabilityComesByTimeAlone(t *testing.T) {
	b := newBench(t)
	controller(b)
	b.newSet(1, func(s *v1beta1.MachineSet) { s.Spec.MinReadySeconds = 2 })
	b.await("a machine", func(l []v1beta1.Machine) bool { return len(l) == 1 })
	b.clock.SetTime(time.Now())
	b.runAll()
	b.awaitSet("ready", func(s *v1beta1.MachineSet) bool { return s.Status.ReadyReplicas == 1 })
	b.awaitSet("available", func(s *v1beta1.MachineSet) bool { return s.Status.AvailableReplicas == 1 })
}
