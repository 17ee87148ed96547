package drain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InService removes the out-of-service taint from a Node. InService sends one patch, or none if the Node does not have
// the taint. It returns the patched Node, or a conflict if the Node has changed.
func InService(ctx context.Context, target client.Client, node *corev1.Node) (*corev1.Node, error) {
	patch := nodePatch{}
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService
	})
	if len(left) < len(node.Spec.Taints) {
		patch.taints(node, left)
	}
	return patch.apply(ctx, target, node, "remove the out-of-service taint")
}
