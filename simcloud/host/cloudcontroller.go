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

// setCloudFields acts as a cloud controller manager: it sets a missing provider ID, and the labels for instance type,
// region and zone. The credentials of the kubelet allow this.
func (m *machine) setCloudFields(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := m.conn.core.Nodes().Get(ctx, m.spec.Hostname, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cloud controller: read the node: %w", err)
	}
	next := m.withCloudFields(node)
	if maps.Equal(node.Labels, next.Labels) && node.Spec.ProviderID == next.Spec.ProviderID {
		return nil
	}
	// Other clients may have changed labels meanwhile.
	maps.DeleteFunc(next.Labels, func(key, value string) bool { return node.Labels[key] == value })
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": next.Labels}, "spec": map[string]any{"providerID": next.Spec.ProviderID},
	})
	if err != nil {
		return fmt.Errorf("cloud controller: encode the change: %w", err)
	}
	if _, err := m.conn.core.Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: "cloud-controller-manager"}); err != nil {
		return fmt.Errorf("cloud controller: update the node: %w", err)
	}
	return nil
}

func (m *machine) withCloudFields(node *corev1.Node) *corev1.Node {
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
		// Labels in the user data take precedence.
		if _, own := m.boot.labels[key]; value != "" && !own {
			next.Labels[key] = value
		}
	}
	return next
}
