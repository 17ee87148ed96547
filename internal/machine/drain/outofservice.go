package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outOfServiceValue is the usual value of the taint. No program checks it.
const outOfServiceValue = "nodeshutdown"

// OutOfService adds the out-of-service taint to a Node. OutOfService sends one patch, or none if the Node has the
// taint already.
//
// The instance must be stopped and must never run again. Kubernetes then deletes all pods of the Node that do not
// tolerate the taint. If the Node is not Ready, Kubernetes removes these pods without waiting for the kubelet, and
// detaches their volumes without checking whether they are mounted. Without the taint, Kubernetes detaches the volumes
// only after six minutes.
//
// OutOfService returns the patched Node and does not modify its argument. OutOfService returns a conflict if the Node
// has changed.
func OutOfService(ctx context.Context, target client.Client, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	declared := func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Effect == corev1.TaintEffectNoExecute
	}
	if slices.ContainsFunc(node.Spec.Taints, declared) {
		return node, nil
	}
	patched := node.DeepCopy()
	patched.Spec.Taints = append(patched.Spec.Taints, corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: outOfServiceValue, Effect: corev1.TaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: now},
	})
	// The patch replaces the whole list of taints, which other clients change too. The lock prevents lost updates.
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := target.Patch(ctx, patched, patch); err != nil {
		return nil, fmt.Errorf("set taint %s on node %q: %w", corev1.TaintNodeOutOfService, node.Name, err)
	}
	return patched, nil
}
