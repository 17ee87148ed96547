package orphans

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

type fakeDrainer struct {
	empty, detached bool
	asked           []drain.Request
	forgotten       int
}

func (d *fakeDrainer) CheckAndDrain(_ context.Context, r drain.Request) drain.Outcome {
	d.asked = append(d.asked, r)
	return drain.Outcome{IsDone: d.empty, LastPodGone: now}
}

func (d *fakeDrainer) VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome {
	return drain.Outcome{IsDone: d.detached}
}

func (d *fakeDrainer) Forget(types.NamespacedName) { d.forgotten++ }

// target gives the collector a target cluster. A second fake client serves as the cache of the target cluster, so that
// a test can make the cache stale.
func (w *testCollector) target() (live, cached client.Client, drainer *fakeDrainer, epoch *uint64) {
	cluster := func() client.Client {
		return fake.NewClientBuilder().WithScheme(env.Scheme()).WithStatusSubresource(&corev1.Node{}).
			WithIndex(&corev1.Node{}, index.NodeByProviderID, func(o client.Object) []string {
				return []string{o.(*corev1.Node).Spec.ProviderID}
			}).Build()
	}
	live, cached, drainer, epoch = cluster(), cluster(), &fakeDrainer{}, new(uint64)
	w.collector.Target = &Target{Nodes: cached, LiveClient: live, Drainer: drainer, Epoch: func() uint64 { return *epoch }}
	return live, cached, drainer, epoch
}

func (w *testCollector) node(c client.Client, name, providerID string, ready corev1.ConditionStatus) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	node.Spec.ProviderID = providerID
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
		LastTransitionTime: metav1.NewTime(now)}}
	if err := client.IgnoreNotFound(c.Delete(w.Context(), node.DeepCopy())); err != nil {
		w.Fatal(err)
	}
	status := node.Status
	if err := c.Create(w.Context(), node); err != nil {
		w.Fatal(err)
	}
	node.Status = status
	if err := c.Status().Update(w.Context(), node); err != nil {
		w.Fatal(err)
	}
}

func (w *testCollector) nodeOf(c client.Client, name string) *corev1.Node {
	w.Helper()
	node := &corev1.Node{}
	if err := c.Get(w.Context(), client.ObjectKey{Name: name}, node); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return node
}

// Rules: ready-orphan-needs-confirmation, person-confirms-removal.
func TestReadyNodeOfOrphanIsDrainedBeforeRemoval(t *testing.T) {
	w := newTestCollector(t)
	live, cached, drainer, epoch := w.target()
	orphan := w.createOrphan(1)
	for _, c := range []client.Client{live, cached} {
		w.node(c, "one", orphan.ProviderID, corev1.ConditionTrue)
	}
	w.reconcile()
	w.pass()
	w.pass()
	w.want(orphan)
	w.wantBlocked("small", v1beta1.ReasonOrphanNodeReady, orphan.ProviderID)
	if n := w.metric("machinist_orphans_blocked", v1beta1.ReasonOrphanNodeReady); n != 1 || len(w.events) != 1 ||
		len(drainer.asked) != 0 {
		t.Errorf("the metric is %v, events %q, %d drains", n, w.events, len(drainer.asked))
	}

	w.confirm("small", w.clock.Now().Add(2*time.Hour).Format(time.RFC3339))
	w.pass()
	w.want(orphan)
	if !w.nodeOf(live, "one").Spec.Unschedulable || len(drainer.asked) != 1 {
		t.Fatalf("the node is %+v after %d drains", w.nodeOf(live, "one").Spec, len(drainer.asked))
	}
	forgotten := drainer.forgotten
	w.confirm("small", "")
	w.pass()
	w.want(orphan)
	if w.nodeOf(live, "one").Spec.Unschedulable || drainer.forgotten != forgotten+1 {
		t.Errorf("the node is %+v", w.nodeOf(live, "one").Spec)
	}

	w.confirm("small", w.clock.Now().Add(5*time.Hour).Format(time.RFC3339))
	w.pass()
	*epoch = 2 // The target cluster was unreachable, so the drain starts again.
	forgotten = drainer.forgotten
	w.pass()
	first, second := drainer.asked[1], drainer.asked[2]
	if drainer.forgotten != forgotten+1 || !second.Start.After(first.Start) || second.Epoch != 2 ||
		second.Deadline.Sub(second.Start) != (v1beta1.MachineTimeouts{}).DrainOrDefault() || !second.NotReadySince.IsZero() {
		t.Errorf("drains %+v and %+v", first, second)
	}
	drainer.empty = true
	w.pass()
	w.want(orphan)
	drainer.detached = true
	forgotten = drainer.forgotten
	w.pass()
	w.want()
	if drainer.forgotten == forgotten {
		t.Error("the drain of the removed instance is remembered")
	}
	w.wantBlocked("small", "", "")
}

// Rule: ready-orphan-needs-confirmation.
func TestReadyNodeMissingInCacheBlocksRemoval(t *testing.T) {
	for name, id := range map[string]string{"not Ready in the cache": "", "a Node without a provider ID": "sim:///other"} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t)
			live, cached, _, _ := w.target()
			orphan := w.createOrphan(1, func(in *provider.Instance) { in.NodeName = "one" })
			if id == "" {
				w.node(cached, "one", orphan.ProviderID, corev1.ConditionUnknown)
				w.node(live, "one", orphan.ProviderID, corev1.ConditionTrue)
			} else {
				w.node(live, "one", "", corev1.ConditionTrue)
			}
			w.reconcile()
			w.pass()
			w.want(orphan)
			if w.cloud.DeleteCount() != 0 {
				t.Errorf("%d deletions were sent", w.cloud.DeleteCount())
			}
			w.node(live, "one", orphan.ProviderID, corev1.ConditionUnknown)
			w.pass()
			w.want()
		})
	}
}

// Rule: node-of-removed-instance-deleted.
func TestNodeOfRemovedInstanceIsDeleted(t *testing.T) {
	w := newTestCollector(t)
	live, cached, _, _ := w.target()
	orphan := w.createOrphan(1)
	for _, c := range []client.Client{live, cached} {
		w.node(c, "dead", orphan.ProviderID, corev1.ConditionUnknown)
		w.node(c, "other", "sim:///other", corev1.ConditionUnknown)
	}
	w.cloud.Shutdown = time.Hour
	w.reconcile()
	w.pass()
	w.want(orphan)
	if w.nodeOf(live, "dead").Annotations[v1beta1.NodeAnnotationInstanceRemoved] != w.namespace+"/small" {
		t.Fatal("the Node is not annotated, or was deleted before its instance")
	}
	w.collector.state = state{} // Another process may lead when the instance is gone.
	w.remember(live, cached, "dead")
	w.cloud.Vanish(orphan.ProviderID)
	w.cloud.OnList = func(string, int) error { return fmt.Errorf("no answer") }
	w.pass()
	if w.nodeOf(live, "dead").Name == "" {
		t.Error("the Node was deleted although the instances could not be listed")
	}
	w.cloud.OnList = nil
	w.pass()
	if w.nodeOf(live, "dead").Name != "" || w.nodeOf(live, "other").Name == "" {
		t.Errorf("left %q and %q", w.nodeOf(live, "dead").Name, w.nodeOf(live, "other").Name)
	}
}

func (w *testCollector) remember(live, cached client.Client, name string) {
	w.Helper()
	is, was := w.nodeOf(live, name), w.nodeOf(cached, name)
	was.Annotations, was.Labels = is.Annotations, is.Labels
	if err := cached.Update(w.Context(), was); err != nil {
		w.Fatal(err)
	}
}

// Rule: node-of-removed-instance-deleted.
func TestReadyOrOwnedNodeOfRemovedInstanceIsKept(t *testing.T) {
	w := newTestCollector(t)
	live, cached, _, _ := w.target()
	w.machine("adopted", "small", "sim:///adopted")
	for _, c := range []client.Client{live, cached} {
		w.node(c, "alive", "sim:///alive", corev1.ConditionTrue)
		w.node(c, "adopted", "sim:///adopted", corev1.ConditionUnknown)
		w.node(c, "other", "sim:///other", corev1.ConditionUnknown)
		w.node(c, "unlisted", "sim:///unlisted", corev1.ConditionUnknown)
		for name, source := range map[string]string{"alive": "small", "adopted": "small", "unlisted": "another"} {
			node := w.nodeOf(c, name)
			node.Annotations = map[string]string{v1beta1.NodeAnnotationInstanceRemoved: w.namespace + "/" + source}
			if err := c.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.node(cached, "recovered", "sim:///recovered", corev1.ConditionUnknown)
	node := w.nodeOf(cached, "recovered")
	node.Annotations = map[string]string{v1beta1.NodeAnnotationInstanceRemoved: w.namespace + "/small"}
	if err := cached.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.node(live, "recovered", "sim:///recovered", corev1.ConditionTrue)
	w.reconcile()
	w.pass()
	for _, name := range []string{"alive", "adopted", "other", "unlisted", "recovered"} {
		if w.nodeOf(live, name).Name == "" {
			t.Errorf("Node %s was deleted", name)
		}
	}
}
