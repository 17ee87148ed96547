package orphans

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/pkg/provider"
)

// nodeLost creates the Node of the lost machine m-1 of class small in the target cluster and its cache. The kubelet
// of this Node is silent.
func (w *testCollector) nodeLost(live, cached client.Client, change func(*corev1.Node, *nodemark.Mark)) {
	w.Helper()
	for _, c := range []client.Client{live, cached} {
		w.node(c, "m-1", "sim:///gone", corev1.ConditionUnknown)
		node := w.nodeOf(c, "m-1")
		mark := nodemark.Mark{ClusterID: "ours", Provider: w.namespace, Class: "small", ProviderID: "sim:///gone"}
		node.Annotations = map[string]string{v1beta1.NodeAnnotationClusterNamespace: w.namespace,
			v1beta1.NodeAnnotationMachine: "m-1"}
		if change != nil {
			change(node, &mark)
		}
		if mark.Provider != "" {
			node.Annotations[v1beta1.NodeAnnotationInstance] = mark.String()
		}
		status := node.Status
		if err := c.Update(w.Context(), node); err != nil {
			w.Fatal(err)
		}
		node.Status = status
		if err := c.Status().Update(w.Context(), node); err != nil {
			w.Fatal(err)
		}
	}
}

// Rule: node-of-lost-machine-deleted.
func TestNodeOfLostMachineIsDeletedWhenInstanceIsGone(t *testing.T) {
	w := newTestCollector(t)
	live, cached, _, _ := w.target()
	w.nodeLost(live, cached, nil)
	w.reconcile()
	if w.nodeOf(live, "m-1").Name == "" {
		t.Fatal("the Node was deleted after one pass")
	}
	w.pass()
	if w.nodeOf(live, "m-1").Name != "" {
		t.Error("the Node was not deleted")
	}
}

// Rule: node-of-lost-machine-deleted.
func TestNodeThatMayHaveMachineOrInstanceIsKept(t *testing.T) {
	mark := func(change func(*nodemark.Mark)) func(*corev1.Node, *nodemark.Mark) {
		return func(_ *corev1.Node, m *nodemark.Mark) { change(m) }
	}
	for name, tc := range map[string]struct {
		node    func(*corev1.Node, *nodemark.Mark)
		arrange func(*testCollector)
		rules   func(*Rules)
	}{
		"of another installation": {node: mark(func(m *nodemark.Mark) { m.ClusterID = "theirs" })},
		"of another provider":     {node: mark(func(m *nodemark.Mark) { m.Provider = "other" })},
		"of another class":        {node: mark(func(m *nodemark.Mark) { m.Class = "large" })},
		"without a class":         {node: mark(func(m *nodemark.Mark) { m.Class = "" })},
		"without a mark":          {node: mark(func(m *nodemark.Mark) { *m = nodemark.Mark{} })},
		"of another namespace": {node: func(n *corev1.Node, _ *nodemark.Mark) {
			n.Annotations[v1beta1.NodeAnnotationClusterNamespace] = "other"
		}},
		"Ready": {node: func(n *corev1.Node, _ *nodemark.Mark) {
			n.Status.Conditions[0].Status = corev1.ConditionTrue
		}},
		"its machine exists":         {arrange: func(w *testCollector) { w.machine("m-1", "small", "") }},
		"another machine has its ID": {arrange: func(w *testCollector) { w.machine("m-2", "small", "sim:///gone") }},
		"its instance is listed": {arrange: func(w *testCollector) {
			w.createOrphan(1, func(in *provider.Instance) { in.ProviderID = "sim:///gone" })
		}},
		"an instance of its machine is listed": {arrange: func(w *testCollector) { w.createOrphan(1) }},
		"the instances are not listed": {arrange: func(w *testCollector) {
			w.cloud.OnList = func(string, int) error { return errors.New("401") }
		}},
		"the cloud does not answer": {arrange: func(w *testCollector) {
			w.cloud.OnGet = func(string) error { return fmt.Errorf("no answer") }
		}},
		"the list lacks a running instance": {arrange: func(w *testCollector) {
			m := w.machine("m-2", "small", "sim:///there")
			w.status(m, func(s *v1beta1.MachineStatus) {
				s.Conditions = []metav1.Condition{{Type: v1beta1.ConditionNodeHealthy,
					Status: metav1.ConditionTrue, Reason: "NodeReady", LastTransitionTime: metav1.NewTime(now)}}
			})
		}},
		"orphans are only reported": {rules: func(r *Rules) { r.ReportOnly = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t, func(r *Rules) {
				r.MaxDeletes = 10
				if tc.rules != nil {
					tc.rules(r)
				}
			})
			live, cached, _, _ := w.target()
			w.nodeLost(live, cached, tc.node)
			if tc.arrange != nil {
				tc.arrange(w)
			}
			w.cloud.Shutdown = time.Hour
			w.reconcile()
			w.pass()
			w.pass()
			if w.nodeOf(live, "m-1").Name == "" {
				t.Error("the Node was deleted")
			}
		})
	}
}

// By now, the Node may belong to another instance.
//
// Rule: node-of-lost-machine-deleted.
func TestNodeOfLostMachineIsReadAgainBeforeDeletion(t *testing.T) {
	w := newTestCollector(t)
	live, cached, _, _ := w.target()
	w.nodeLost(live, cached, nil)
	w.nodeLost(live, live, func(_ *corev1.Node, m *nodemark.Mark) { m.ProviderID = "sim:///new" })
	w.reconcile()
	w.pass()
	w.pass()
	if w.nodeOf(live, "m-1").Name == "" {
		t.Error("a Node with another mark was deleted")
	}
}

// The provider ID of a Node may have a format of its own. The mark then identifies the Node of an orphan.
//
// Rules: ready-orphan-needs-confirmation, node-of-removed-instance-deleted.
func TestNodeMarkIdentifiesNodeOfOrphan(t *testing.T) {
	w := newTestCollector(t)
	live, cached, _, _ := w.target()
	orphan := w.createOrphan(1, func(in *provider.Instance) { in.NodeName = "m-1" })
	ready := corev1.ConditionTrue
	updateNode := func() {
		w.nodeLost(live, cached, func(n *corev1.Node, m *nodemark.Mark) {
			n.Spec.ProviderID, m.ProviderID = "k3s://m-1", orphan.ProviderID
			n.Status.Conditions[0].Status = ready
		})
	}
	updateNode()
	w.reconcile()
	w.pass()
	w.wantBlocked("small", v1beta1.ReasonOrphanNodeReady, "")
	w.want(orphan)
	ready = corev1.ConditionUnknown
	updateNode()
	w.cloud.Shutdown = time.Hour
	w.pass()
	w.remember(live, cached, "m-1")
	w.pass()
	if w.nodeOf(live, "m-1").Name == "" {
		t.Fatal("the Node was deleted before its instance")
	}
	w.cloud.Vanish(orphan.ProviderID)
	w.pass()
	w.pass()
	if w.nodeOf(live, "m-1").Name != "" {
		t.Error("the Node was not deleted")
	}
}
