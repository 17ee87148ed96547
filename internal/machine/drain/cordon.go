package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// labelValue is the value of the label that excludes a Node from load balancers. Load balancers only check that the
	// label exists.
	labelValue = "machinist"
)

// Cordon marks a Node as unschedulable and excludes it from load balancers. Cordon sends one patch, or none if the
// Node is cordoned already. Cordon returns the patched Node and does not modify its argument. The argument must have
// a UID. If another Node has taken the name in the meantime, Cordon returns a conflict and does not change that Node.
//
// The node lifecycle controller of Kubernetes adds a taint to each unschedulable Node. Cordon sets this taint in the
// same patch, which saves that controller two calls. If the Node has changed in the meantime, Cordon omits the taint,
// and the node lifecycle controller adds it.
func Cordon(ctx context.Context, target client.Client, node *corev1.Node) (*corev1.Node, error) {
	patch := nodePatch{}
	if _, labelled := node.Labels[v1beta1.NodeLabelExcludeFromLoadBalancers]; !labelled {
		patch.label(labelValue)
	}
	if node.Spec.Unschedulable {
		return patch.apply(ctx, target, node, "cordon")
	}
	patch.unschedulable(true, "true")
	tainted := patch
	tainted.taints(node, append(withoutUnschedulable(node.Spec.Taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable,
		Effect: corev1.TaintEffectNoSchedule}))
	cordoned, err := tainted.apply(ctx, target, node, "cordon")
	if apierrors.IsConflict(err) {
		return patch.apply(ctx, target, node, "cordon")
	}
	return cordoned, err
}

// NeedsUncordon reports whether Uncordon would change the Node.
func NeedsUncordon(node *corev1.Node) bool {
	_, cordoned := node.Annotations[v1beta1.NodeAnnotationCordoned]
	return cordoned || node.Labels[v1beta1.NodeLabelExcludeFromLoadBalancers] == labelValue
}

// Uncordon undoes what Cordon did. Uncordon sends one patch, or none if there is nothing to undo. If another client
// cordoned the Node, the Node stays cordoned. If another client set the label, the label stays. The patch also
// removes the given annotations, to which node agents would otherwise react while pods run on the Node again.
// Uncordon returns a conflict if the Node has changed in the meantime.
func Uncordon(ctx context.Context, target client.Client, node *corev1.Node,
	annotations ...string) (*corev1.Node, error) {
	patch := nodePatch{}
	if node.Labels[v1beta1.NodeLabelExcludeFromLoadBalancers] == labelValue {
		patch.label(nil)
	}
	if _, cordoned := node.Annotations[v1beta1.NodeAnnotationCordoned]; cordoned {
		patch.unschedulable(false, nil)
		if left := withoutUnschedulable(node.Spec.Taints); len(left) < len(node.Spec.Taints) {
			patch.taints(node, left)
		}
	}
	for _, key := range annotations {
		patch.annotate(key, nil)
	}
	return patch.apply(ctx, target, node, "uncordon")
}

func withoutUnschedulable(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable
	})
}

// nodePatch is a JSON merge patch. The patch contains a resource version only if it replaces the list of taints.
// Otherwise, a resource version would only cause conflicts with the heartbeats of the kubelet.
type nodePatch struct {
	Metadata struct {
		UID             types.UID      `json:"uid"`
		ResourceVersion string         `json:"resourceVersion,omitempty"`
		Labels          map[string]any `json:"labels,omitempty"`
		Annotations     map[string]any `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec map[string]any `json:"spec,omitempty"`
}

func (p *nodePatch) label(value any) {
	p.Metadata.Labels = map[string]any{v1beta1.NodeLabelExcludeFromLoadBalancers: value}
}

func (p *nodePatch) unschedulable(value bool, annotation any) {
	p.Spec = map[string]any{"unschedulable": value}
	p.annotate(v1beta1.NodeAnnotationCordoned, annotation)
}

func (p *nodePatch) taints(node *corev1.Node, taints []corev1.Taint) {
	p.Metadata.ResourceVersion = node.ResourceVersion
	if p.Spec = maps.Clone(p.Spec); p.Spec == nil {
		p.Spec = map[string]any{}
	}
	p.Spec["taints"] = taints
}

func (p *nodePatch) annotate(key string, value any) {
	if p.Metadata.Annotations == nil {
		p.Metadata.Annotations = map[string]any{}
	}
	p.Metadata.Annotations[key] = value
}

func (p *nodePatch) apply(ctx context.Context, target client.Client, node *corev1.Node,
	verb string) (*corev1.Node, error) {
	if p.Metadata.Labels == nil && p.Spec == nil {
		return node, nil
	}
	if node.UID == "" {
		return nil, fmt.Errorf("%s node %q: the Node has no UID", verb, node.Name)
	}
	p.Metadata.UID = node.UID
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("%s node %q: encode the patch: %w", verb, node.Name, err)
	}
	patched := node.DeepCopy()
	if err := target.Patch(ctx, patched, client.RawPatch(types.MergePatchType, data)); err != nil {
		if changesUID(err) {
			err = apierrors.NewConflict(corev1.Resource("nodes"), node.Name, err)
		}
		return nil, fmt.Errorf("%s node %q: %w", verb, node.Name, err)
	}
	return patched, nil
}

// changesUID reports whether the API server refused a patch because the object has another UID. The API server treats
// such a patch as an attempt to change the UID.
func changesUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
