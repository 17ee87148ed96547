package standin

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const kubermaticOwner = "machine-controller/owned-by"

var kubermaticFinalizers = []string{"machine-delete-finalizer", "machine-node-delete-finalizer"}

// firstKubermatic is the first version of Kubermatic's machine-controller. This version has only Machines, and the
// garbage collector deletes the Node of a deleted Machine.
var firstKubermatic = group{
	version:             "v1alpha1",
	finalizers:          kubermaticFinalizers,
	instance:            []string{"spec", "providerConfig", "cloudProviderSpec"},
	nodeMeta:            []string{"spec", "metadata"},
	taints:              []string{"spec", "taints"},
	noStatusSubresource: true,
	status: func(node *corev1.Node) map[string]any {
		return map[string]any{"nodeRef": nodeRef(node),
			"versions": map[string]any{"kubelet": node.Status.NodeInfo.KubeletVersion}}
	},
	mark: func(machine *unstructured.Unstructured, node *corev1.Node) {
		metav1.SetMetaDataLabel(&node.ObjectMeta, kubermaticOwner, string(machine.GetUID()))
		if metav1.GetControllerOf(node) == nil {
			node.OwnerReferences = append(node.OwnerReferences,
				*metav1.NewControllerRef(machine, machine.GroupVersionKind()))
		}
	},
}

// kubermatic is the version with the early Cluster API. The garbage collector deletes the dependents of a set or
// deployment, and then the owner.
var kubermatic = group{
	version:         "v1alpha1",
	parents:         []string{deployments, sets},
	parentFinalizer: metav1.FinalizerDeleteDependents,
	revision:        "machinedeployment.clusters.k8s.io/revision",
	finalizers:      kubermaticFinalizers,
	instance:        []string{"spec", "providerSpec", "value", "cloudProviderSpec"},
	nodeMeta:        []string{"spec", "metadata"},
	taints:          []string{"spec", "taints"},
	identify:        setProviderID,
	status: func(node *corev1.Node) map[string]any {
		return map[string]any{"nodeRef": nodeRef(node), "phase": "Running",
			"versions": map[string]any{"kubelet": node.Status.NodeInfo.KubeletVersion}}
	},
	mark: func(machine *unstructured.Unstructured, node *corev1.Node) {
		metav1.SetMetaDataLabel(&node.ObjectMeta, kubermaticOwner, string(machine.GetUID()))
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, "cluster.k8s.io/machine",
			machine.GetNamespace()+"/"+machine.GetName())
	},
}
