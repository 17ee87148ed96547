package standin

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const sapcloudFinalizer = "machine.sapcloud.io/machine-controller-manager"

// sapcloud is the machine-controller-manager of Gardener, including the controller of the provider.
var sapcloud = group{
	version:         "v1alpha1",
	parents:         []string{classes, deployments, sets},
	parentFinalizer: sapcloudFinalizer,
	revision:        "deployment.kubernetes.io/revision",
	finalizers:      []string{sapcloudFinalizer},
	nodeFinalizer:   "node.machine.sapcloud.io/machine-controller",
	className:       []string{"spec", "class", "name"},
	instance:        []string{"providerSpec"},
	nodeMeta:        []string{"spec", "nodeTemplate", "metadata"},
	taints:          []string{"spec", "nodeTemplate", "spec", "taints"},
	identify: func(machine *unstructured.Unstructured, in Instance) {
		setProviderID(machine, in)
		labels := machine.GetLabels()
		labels["node"] = in.NodeName
		machine.SetLabels(labels)
	},
	status: func(*corev1.Node) map[string]any {
		return map[string]any{"currentStatus": map[string]any{"phase": "Running"},
			"lastOperation": map[string]any{"type": "Create", "state": "Successful"}}
	},
	mark: func(machine *unstructured.Unstructured, node *corev1.Node) {
		// The controller stores the applied template, so that it can later remove entries that the template no longer
		// contains.
		template, _, _ := unstructured.NestedMap(machine.Object, "spec", "nodeTemplate")
		applied, err := json.Marshal(template)
		if err == nil {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "node.machine.sapcloud.io/last-applied-anno-labels-taints",
				string(applied))
		}
	},
}
