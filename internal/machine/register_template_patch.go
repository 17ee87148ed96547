package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type edit struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// templatePatch returns a JSON patch that applies the node template. The patch succeeds even if other clients change
// the Node at the same time, which is common when a Node registers. The patch tests the values on which it depends. If
// these values have changed, the API server rejects the patch as invalid. The result is nil if the Node has no labels,
// annotations or taints, because a JSON patch cannot test for a missing map or list.
func templatePatch(node, withTemplate *corev1.Node) (client.Patch, error) {
	if node.Labels == nil || node.Annotations == nil || len(node.Spec.Taints) == 0 {
		return nil, nil
	}
	record := "/metadata/annotations/" + pointer(v1beta1.NodeAnnotationLastAppliedNodeTemplate)
	ops := []edit{{"test", "/metadata/uid", node.UID}, {"test", record, nil}}
	if was, known := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]; known {
		ops[1].Value = was
	}
	ops = append(ops, changes("/metadata/labels/", node.Labels, withTemplate.Labels)...)
	ops = append(ops, changes("/metadata/annotations/", node.Annotations, withTemplate.Annotations)...)
	if node.Spec.ProviderID != withTemplate.Spec.ProviderID {
		ops = append(ops, edit{"add", "/spec/providerID", withTemplate.Spec.ProviderID})
	}
	for i, was := range slices.Backward(node.Spec.Taints) {
		path := fmt.Sprintf("/spec/taints/%d", i)
		switch at := findTaint(withTemplate.Spec.Taints, was); {
		case at < 0:
			ops = append(ops, edit{"test", path, was}, edit{Op: "remove", Path: path})
		case !equality.Semantic.DeepEqual(was, withTemplate.Spec.Taints[at]):
			ops = append(ops, edit{"test", path, was}, edit{"replace", path, withTemplate.Spec.Taints[at]})
		}
	}
	for _, t := range withTemplate.Spec.Taints {
		if findTaint(node.Spec.Taints, t) < 0 {
			ops = append(ops, edit{"add", "/spec/taints/-", t})
		}
	}
	data, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode a patch of node %s: %w", node.Name, err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

func changes(path string, before, after map[string]string) (ops []edit) {
	for key := range before {
		if _, stays := after[key]; !stays {
			ops = append(ops, edit{Op: "remove", Path: path + pointer(key)})
		}
	}
	for key, value := range after {
		if old, there := before[key]; !there || old != value {
			ops = append(ops, edit{"add", path + pointer(key), value})
		}
	}
	slices.SortFunc(ops, func(a, b edit) int { return strings.Compare(a.Path, b.Path) })
	return ops
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer escapes a key for its use in a JSON pointer.
func pointer(key string) string { return pointerEscapes.Replace(key) }
