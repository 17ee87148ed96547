package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func (w *world) uncordon(name string) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Spec.Unschedulable = false
	node.Spec.Taints = nil
	if err := w.api.Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// Rule: uncordoned-node-drained-again.
func TestANodeThatWasUncordonedIsDrainedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.cloud.Fail("Delete", throttledFor(time.Minute))
	w.delete("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, metav1.ConditionTrue, v1beta1.ReasonDrained)

	w.uncordon(m.Status.NodeRef.Name)
	w.podOn(m.Status.NodeRef.Name)
	w.step(2 * time.Minute)
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, metav1.ConditionFalse, v1beta1.ReasonDraining)
	if c.LastTransitionTime.Time.Before(w.clock.Now().Add(-time.Minute)) {
		t.Errorf("the second drain began at %s", c.LastTransitionTime)
	}
	if node := w.getNode(m.Status.NodeRef.Name); !node.Spec.Unschedulable {
		t.Error("the node is not cordoned again")
	}
	w.wantDeletes(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "work"}}
	if err := w.api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.drains("m")
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule: uncordoned-node-drained-again.
func TestANodeThatWasUncordonedIsDrainedAgainForItsUpdate(t *testing.T) {
	t.Parallel()
	needsDrain := provider.UpdateResult{Outcome: provider.UpdateNeedsDrain}
	a := &scriptedUpdates{given: []provider.UpdateResult{needsDrain, needsDrain,
		{Outcome: provider.UpdateInProgress}, needsDrain}}
	w, m := changed(t, a)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, metav1.ConditionTrue, v1beta1.ReasonDrained)
	w.uncordon(m.Status.NodeRef.Name)
	w.podOn(m.Status.NodeRef.Name)
	w.step(time.Minute)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, metav1.ConditionFalse, v1beta1.ReasonDraining)
	if last := a.asked[len(a.asked)-1]; last.NodeDrained {
		t.Error("the driver was told that the node is drained")
	}
}
