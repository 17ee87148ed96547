package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
)

// These annotations of a Node contain the request for a kubelet update, and its result.
const (
	updateRequested = "machinist.dev/update-requested"
	updateResult    = "machinist.dev/update-result"
)

// handleUpdateRequest simulates the agent in images that have one. The agent installs the requested kubelet version,
// restarts the kubelet, and writes the result to an annotation. The agent ignores a request that already has a result.
// If the request changes meanwhile, the patch with the result fails.
func (m *machine) handleUpdateRequest(ctx context.Context, node *corev1.Node) error {
	version, asked := node.Annotations[updateRequested]
	if _, answered := node.Annotations[updateResult]; !m.spec.Image.NodeAgent || !asked || answered {
		return nil
	}
	answer := "succeeded"
	if err := m.install(node, version); err != nil {
		answer = "failed: " + err.Error()
	} else if _, err := m.syncNode(ctx, false, true); err != nil {
		return err
	}
	m.printf("agent: update to %.64q: %s", version, answer)
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": pointer(updateRequested), "value": version},
		{"op": "add", "path": pointer(updateResult), "value": answer},
	})
	if err != nil {
		return fmt.Errorf("encode the agent's answer: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = m.conn.core.Nodes().Patch(ctx, node.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) {
		m.printf("agent: the request changed meanwhile")
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the agent's answer: %w", err)
	}
	return nil
}

// install changes the kubelet version permanently and restarts the kubelet.
func (m *machine) install(node *corev1.Node, version string) error {
	if why, fails := node.Annotations[simcloud.AnnotationUpdateFails]; fails {
		return fmt.Errorf("%s", why)
	}
	if !catalog.IsVersion(version) {
		return fmt.Errorf("version %.64q must have the form v1.2.3", version)
	}
	if version == m.boot.version {
		return nil
	}
	disk := m.disk
	disk.KubeletVersion = version
	if err := m.save(disk); err != nil {
		return err
	}
	m.boot.version, m.registrationTime = version, m.clock.Now()
	return nil
}

func pointer(annotation string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(annotation, "/", "~1")
}
