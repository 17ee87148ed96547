package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// adoptNode writes on the Node what a cloud controller manager does, and no
// kubelet: the provider ID, where nobody else has, and the labels of instance
// type, region and zone. It is done under the identity of the kubelet, which
// may write both.
func (m *machine) adoptNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := m.conn.core.Nodes().Get(ctx, m.spec.Hostname, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cloud controller: read node: %w", err)
	}
	next := m.adopted(node)
	if maps.Equal(node.Labels, next.Labels) && node.Spec.ProviderID == next.Spec.ProviderID {
		return nil
	}
	// Labels of others may have changed meanwhile.
	maps.DeleteFunc(next.Labels, func(key, value string) bool { return node.Labels[key] == value })
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": next.Labels}, "spec": map[string]any{"providerID": next.Spec.ProviderID},
	})
	if err != nil {
		return fmt.Errorf("cloud controller: encode the change: %w", err)
	}
	if _, err := m.conn.core.Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: "cloud-controller-manager"}); err != nil {
		return fmt.Errorf("cloud controller: update node: %w", err)
	}
	return nil
}

// adopted is the Node with what the cloud knows of it.
func (m *machine) adopted(node *corev1.Node) *corev1.Node {
	next := node.DeepCopy()
	if next.Spec.ProviderID == "" {
		next.Spec.ProviderID = m.spec.ProviderID
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: m.spec.Type.Name, corev1.LabelTopologyRegion: m.spec.Region,
		corev1.LabelTopologyZone: m.spec.Zone,
	} {
		// What user data have the kubelet say stays.
		if _, own := m.boot.labels[key]; value != "" && !own {
			next.Labels[key] = value
		}
	}
	return next
}
