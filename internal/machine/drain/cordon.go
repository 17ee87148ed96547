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
	// labelValue marks the label that takes a Node out of load balancers as ours. They check its presence only.
	labelValue = "machinist"
)

// Cordon keeps new pods and load balancers away from a Node, in one patch, none if it is so already. It returns the
// Node as it is then and does not change the one given, which must have its UID: a Node of the same name that took its
// place is not touched, that is a conflict.
//
// Kubernetes' node lifecycle controller answers to an unschedulable Node with a taint, for which it reads and patches
// the Node once more. With the taint in the same patch there is nothing left to do; if the Node has changed
// meanwhile, it is left to that controller.
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

// Cordoned reports whether there is anything for Uncordon to take back.
func Cordoned(node *corev1.Node) bool {
	_, cordoned := node.Annotations[v1beta1.NodeAnnotationCordoned]
	return cordoned || node.Labels[v1beta1.NodeLabelExcludeFromLoadBalancers] == labelValue
}

// Uncordon takes back what Cordon did, in one patch, none if there is nothing to take back. What others did is left:
// a Node that was cordoned before stays so, and so does the label of another. The annotations taken off with it are
// what nobody must act upon any more once pods come back. It is a conflict if the Node has changed meanwhile.
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

// withoutUnschedulable returns the taints but for those that say what spec.unschedulable says.
func withoutUnschedulable(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable
	})
}

// nodePatch is a JSON merge patch. Unless it replaces the list of taints it needs no resource version, and would only
// lose races with the kubelet's heartbeats if it had one.
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

func (p *nodePatch) unschedulable(value bool, ours any) {
	p.Spec = map[string]any{"unschedulable": value}
	p.annotate(v1beta1.NodeAnnotationCordoned, ours)
}

func (p *nodePatch) taints(node *corev1.Node, taints []corev1.Taint) {
	p.Metadata.ResourceVersion = node.ResourceVersion
	p.Spec = maps.Clone(p.Spec)
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
		return nil, fmt.Errorf("%s node %q: it has no UID", verb, node.Name)
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

// changesUID shows whether a patch was refused since the object has another UID, which the API server takes for an
// attempt to change it.
func changesUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
