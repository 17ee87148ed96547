package drain

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rule: out-of-service-taint.
func TestOutOfServiceAddsTheTaintOnceAndKeepsOthers(t *testing.T) {
	node := aNode("m1")
	node.Spec.Taints = []corev1.Taint{
		{Key: "example.org/other", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}, // does not end pods
	}
	b := newBench(t, node)
	var found corev1.Node
	get := func() *corev1.Node {
		if err := b.target.Get(context.Background(), client.ObjectKey{Name: "m1"}, &found); err != nil {
			t.Fatal(err)
		}
		return found.DeepCopy()
	}
	before := get()
	declared, err := OutOfService(context.Background(), b.target, before, noon)
	if err != nil {
		t.Fatal(err)
	}
	const taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	if taints := get().Spec.Taints; len(taints) != 3 || taints[2].ToString() != taint ||
		!taints[2].TimeAdded.Time.Equal(noon) {
		t.Errorf("taints are %v, want %s as the third", taints, taint)
	}
	if len(before.Spec.Taints) != 2 {
		t.Error("OutOfService modified its argument")
	}
	again, err := OutOfService(context.Background(), b.target, declared, noon.Add(1))
	if err != nil || again != declared {
		t.Errorf("second call: got %v, error %v, want the unchanged Node", again, err)
	}
	if _, err := OutOfService(context.Background(), b.target, before, noon); !apierrors.IsConflict(err) {
		t.Errorf("stale Node: got error %s, want a conflict", fmt.Sprint(err))
	}
}
