package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// bench runs a drain controller without goroutines, with a fake target cluster and a fake clock.
type bench struct {
	*testing.T
	*Controller
	clock          *clocktesting.FakePassiveClock
	target         client.WithWatch
	work, triggers *fakeQueue

	// evictionErrors contains the error that the API server returns for the eviction of a pod, by the name of the pod.
	// The field callTime is the duration of an eviction request.
	evictionErrors map[string]error
	callTime       time.Duration
	onEvict        func(pod string)
	onList         func()
	// unreachable is the error that the API server returns for every call, or nil.
	unreachable error

	evictions []string // names of the pods, in order
	deletions []string
	reads     int
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	b := &bench{T: t, clock: clocktesting.NewFakePassiveClock(noon), evictionErrors: map[string]error{}}
	b.target = interceptor.NewClient(
		fake.NewClientBuilder().WithObjects(objects...).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
				return []string{o.(*corev1.Pod).Spec.NodeName}
			}).
			Build(),
		interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				b.reads++
				if b.onList != nil {
					b.onList()
				}
				if b.unreachable != nil {
					return b.unreachable
				}
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				b.reads++
				if b.unreachable != nil {
					return b.unreachable
				}
				return c.Get(ctx, key, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				var options client.DeleteOptions
				options.ApplyOptions(opts)
				b.deletions = append(b.deletions, fmt.Sprint(o.GetName(), " ", *options.GracePeriodSeconds))
				return errors.Join(b.unreachable, c.Delete(ctx, o, opts...))
			},
		})
	b.restart(Options{})
	return b
}

func (b *bench) restart(o Options) {
	o.Target, o.Clock, o.Evict = b.target, b.clock, b.evict
	b.Controller = New(o)
	b.work, b.triggers = startSources(b.T, b.Wiring().Sources...), startSources(b.T, b.Triggers())
}

func (b *bench) evict(ctx context.Context, e *policyv1.Eviction) error {
	b.evictions = append(b.evictions, e.Name)
	b.pass(b.callTime)
	if b.onEvict != nil {
		b.onEvict(e.Name)
	}
	if err := errors.Join(b.unreachable, b.evictionErrors[e.Name]); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := b.target.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &pod); err != nil {
		return err
	}
	if uid := e.DeleteOptions.Preconditions.UID; *uid != pod.UID {
		b.Errorf("the eviction of %s is for UID %s, not for %s", e.Name, *uid, pod.UID)
	}
	return b.target.SubResource("eviction").Create(ctx, &pod, e.DeepCopy())
}

func (b *bench) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// request returns a request to drain the node of a machine. The node has the name of the machine. The drain starts at
// noon, and its deadline is two hours later.
func request(machine string) Request {
	return Request{
		Subject: subject(machine), Start: noon, Deadline: at(2 * time.Hour), NodeReachable: true,
	}
}

func subject(machine string) Subject {
	return Subject{
		Machine: key(machine), UID: types.UID(machine + "-uid"), Node: machine, NodeUID: types.UID(machine + "-node"),
	}
}

func key(machine string) types.NamespacedName {
	return types.NamespacedName{Namespace: "machines", Name: machine}
}

func (b *bench) runPass(machine string) time.Duration {
	b.Helper()
	result, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key(machine)})
	if err != nil {
		b.Fatalf("a pass for %s: %v", machine, err)
	}
	return result.RequeueAfter
}

func (b *bench) drain(machine string) Outcome { return b.Drain(request(machine)) }

func (b *bench) expectEvictions(want ...string) {
	b.Helper()
	if !slices.Equal(b.evictions, want) {
		b.Errorf("%s: evictions of %v, want %v", b.clock.Now().Sub(noon), b.evictions, want)
	}
	b.evictions = nil
}

func (b *bench) expectOutcome(o Outcome, done bool, reason, message string) {
	b.Helper()
	if o.IsDone != done || o.Reason != reason || o.Message != message {
		b.Errorf("got done %t, %s: %q, want %t, %s: %q", o.IsDone, o.Reason, o.Message, done, reason, message)
	}
}

// fakeQueue records the requests that are added to it. It also calls onAdd for each request.
type fakeQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []string
	onAdd func(reconcile.Request)
}

func (q *fakeQueue) Add(r reconcile.Request) {
	q.added = append(q.added, r.Name)
	if q.onAdd != nil {
		q.onAdd(r)
	}
}

func (q *fakeQueue) take() []string {
	added := q.added
	q.added = nil
	return added
}

func startSources(t *testing.T, sources ...source.Source) *fakeQueue {
	q := &fakeQueue{}
	for _, s := range sources {
		if err := s.Start(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

func aNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-node")}}
}

func on(node string, pod corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = node
	return &pod
}

func anAttachment(name, node, volume string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

func fillAttachments(into client.ObjectList, from, to, total int) error {
	list := into.(*storagev1.VolumeAttachmentList)
	for i := from; i < to; i++ {
		name := fmt.Sprint("va-", i)
		list.Items = append(list.Items, *anAttachment(name, fmt.Sprint("node-", i%100), "pv-"+name))
	}
	if to < total {
		list.Continue = fmt.Sprint(to)
	}
	return nil
}
