package healthcheck

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
)

// cachedReader is a cache with three machines, their Nodes and other Nodes. The cache returns shared objects.
type cachedReader struct {
	client.Client
	machines []any
	nodes    map[string]*corev1.Node
	names    []any
}

func newCached(others int) *cachedReader {
	c := &cachedReader{nodes: map[string]*corev1.Node{}}
	add := func(n *corev1.Node) {
		c.nodes[n.Name] = n
		c.names = append(c.names, n)
	}
	for _, s := range fleet(3, 0) {
		c.machines = append(c.machines, s.Machine)
		add(s.Node)
	}
	for i := range others {
		add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%05d", i), UID: types.UID(fmt.Sprint(i))}})
	}
	return c
}

// ListShared implements the interface that package index needs.
func (c *cachedReader) ListShared(_ context.Context, list client.ObjectList,
	options ...client.ListOption) ([]any, error) {
	o := (&client.ListOptions{}).ApplyOptions(options)
	if _, ok := list.(*corev1.NodeList); ok {
		return append([]any(nil), c.names...), nil
	}
	if o.FieldSelector == nil {
		return c.machines, nil
	}
	name, _ := o.FieldSelector.RequiresExactMatch(index.MachineByNodeName)
	var found []any
	for _, m := range c.machines {
		if m.(*v1beta1.Machine).Status.NodeRef.Name == name {
			found = append(found, m)
		}
	}
	return found, nil
}

func (c *cachedReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if _, ok := list.(*v1beta1.MachineHealthCheckList); !ok {
		return fmt.Errorf("a list of %T is not shared", list)
	}
	return nil
}

func (c *cachedReader) Get(_ context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	if asked := (&client.GetOptions{}).ApplyOptions(options); asked.UnsafeDisableDeepCopy == nil ||
		!*asked.UnsafeDisableDeepCopy {
		return fmt.Errorf("a copy of %T %s was requested", o, key)
	}
	node, known := c.nodes[key.Name]
	if !known {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	*o.(*corev1.Node) = *node
	return nil
}

func checking(others int) *Reconciler {
	c := newCached(others)
	return New(Options{Client: c, Nodes: &Nodes{CachedReader: c, LiveReader: c}, BuiltIn: policy(),
		Clock: testclock.NewFakePassiveClock(minutes(60))})
}

func passOf(t testing.TB, r *Reconciler) {
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
}

// Rule: unhealthy-after-timeout.
func TestNextPassIsDueWhenATimeoutEnds(t *testing.T) {
	r := checking(0)
	silent(20)(&Subject{Node: r.Nodes.CachedReader.(*cachedReader).nodes["node-m01"]})
	result, err := r.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter != 10*time.Minute {
		t.Errorf("the next pass is due after %s, %v", result.RequeueAfter, err)
	}
}

// Only the number of machines determines the cost of a pass.
//
// Rule: health-cost-by-machines.
func TestOtherNodesDoNotSlowDownPasses(t *testing.T) {
	bytes := func(others int) int64 {
		r := checking(others)
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				passOf(b, r)
			}
		}).AllocedBytesPerOp()
	}
	alone, among := bytes(0), bytes(20_000)
	t.Logf("a pass over 3 machines allocates %d bytes, and %d with 20,000 other Nodes", alone, among)
	if float64(among) > 1.1*float64(alone) {
		t.Errorf("a pass allocates %.1f times as much with 20,000 other Nodes", float64(among)/float64(alone))
	}
}

// Rule: health-cost-by-machines.
func TestOtherNodesDoNotTriggerPasses(t *testing.T) {
	r := checking(100)
	nodes := r.Wiring().Watches[3]
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for name, want := range map[string]int{"other-00001": 0, "node-m01": 1} {
		node := r.Nodes.CachedReader.(*cachedReader).nodes[name]
		for _, report := range []func(){
			func() { nodes.Keys.Create(t.Context(), event.CreateEvent{Object: node}, q) },
			func() { nodes.Keys.Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: node}, q) },
			func() { nodes.Keys.Delete(t.Context(), event.DeleteEvent{Object: node}, q) },
		} {
			report()
			if got := q.Len(); got != want {
				t.Errorf("%s: %d passes were triggered, want %d", name, got, want)
			}
			for q.Len() > 0 {
				item, _ := q.Get()
				q.Done(item)
			}
		}
	}
}

func BenchmarkPassAmongOtherNodes(b *testing.B) {
	for _, others := range []int{0, 20_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) {
			r := checking(others)
			b.ReportAllocs()
			for b.Loop() {
				passOf(b, r)
			}
		})
	}
}
