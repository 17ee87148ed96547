// Package standin is a stand-in for the controllers of the systems whose fleets Machinist takes over. It serves the
// objects of one API group with instances of the simulated cloud, and leaves the traces on objects, Nodes and instances
// by which the real controllers know what is theirs. A test kills it and starts it again: what it then does is what an
// old controller would do to the fleet.
//
// It reads everything anew in each pass, so it knows nothing but what is in the cluster and at the cloud.
package standin

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The kinds, which all groups name alike.
const (
	deployments = "MachineDeployment"
	sets        = "MachineSet"
	machines    = "Machine"
)

// group is how one old system works.
type group struct {
	version string
	// parents are its kinds that make machines.
	parents []string
	// parentFinalizer is on the parents, revision an annotation of theirs. Empty: there is none.
	parentFinalizer, revision string
	// finalizers are on Machines.
	finalizers []string
	// instance is where a Machine has the description of its instance.
	instance []string
	// providerID: it is written to spec.providerID.
	providerID bool
	// wholeStatus: there is no subresource for the status.
	wholeStatus bool
	// status is what the status of a Machine says of its Node.
	status func(node *corev1.Node) map[string]any
	// mark leaves on a Node what it has to do with a Machine.
	mark func(machine *unstructured.Unstructured, node *corev1.Node)
}

var groups = map[string]group{
	"machine.k8s.io":  firstKubermatic,
	"machines.k8s.io": firstKubermatic,
	"cluster.k8s.io": {
		version:         "v1alpha1",
		parents:         []string{deployments, sets},
		parentFinalizer: metav1.FinalizerDeleteDependents,
		revision:        "machinedeployment.clusters.k8s.io/revision",
		finalizers:      kubermaticFinalizers,
		instance:        []string{"spec", "providerSpec", "value", "cloudProviderSpec"},
		providerID:      true,
		status: func(node *corev1.Node) map[string]any {
			return map[string]any{"nodeRef": nodeRef(node), "phase": "Running",
				"versions": map[string]any{"kubelet": node.Status.NodeInfo.KubeletVersion}}
		},
		mark: func(machine *unstructured.Unstructured, node *corev1.Node) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, kubermaticOwner, string(machine.GetUID()))
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, "cluster.k8s.io/machine",
				machine.GetNamespace()+"/"+machine.GetName())
		},
	},
}

// kubermaticOwner is a label on Nodes.
const kubermaticOwner = "machine-controller/owned-by"

var kubermaticFinalizers = []string{"machine-delete-finalizer", "machine-node-delete-finalizer"}

// firstKubermatic has Machines only. The garbage collector deletes a Node with its Machine.
var firstKubermatic = group{
	version:     "v1alpha1",
	finalizers:  kubermaticFinalizers,
	instance:    []string{"spec", "providerConfig", "cloudProviderSpec"},
	wholeStatus: true,
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

func nodeRef(node *corev1.Node) map[string]any {
	return map[string]any{"kind": "Node", "name": node.Name, "uid": string(node.UID)}
}
