// Package standin is a stand-in for the controllers of the systems from which Machinist can migrate fleets. It
// reconciles the objects of one API group with instances of the simulated cloud. It marks objects, Nodes and instances
// in the same way as the real controllers. A test can stop and restart the stand-in, to find out what an old controller
// would do to the fleet.
//
// It has no state of its own, and reads everything from the cluster and the cloud in each pass.
package standin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// The kinds have the same names in all groups.
const (
	classes     = "MachineClass"
	deployments = "MachineDeployment"
	sets        = "MachineSet"
	machines    = "Machine"
)

// group describes one old system.
type group struct {
	version string
	// parents contains the kinds of the objects that own or describe Machines, beginning with the top-level owner.
	parents []string
	// parentFinalizer is a finalizer of the parents. revision is an annotation of deployments. Each may be empty.
	parentFinalizer, revision string
	// finalizers are the finalizers of Machines. nodeFinalizer is the finalizer of their Nodes. Each may be empty.
	finalizers    []string
	nodeFinalizer string
	// className is the path of the field in a Machine that contains the name of the class. It is nil if the group has no
	// classes.
	className []string
	// instance is the path of the instance's description in a class, or in a Machine if the group has no classes. nodeMeta
	// and taints are the paths in a Machine of the metadata and taints for the Node.
	instance, nodeMeta, taints []string
	// noStatusSubresource is set if the kinds of the group have no status subresource.
	noStatusSubresource bool
	// identify stores the identity of the instance in the Machine. It may be nil.
	identify func(machine *unstructured.Unstructured, in *simcloud.Instance)
	// status returns the status that a Machine has when its Node is ready.
	status func(node *corev1.Node) map[string]any
	// mark sets the labels or annotations that mark a Node as the Node of a Machine.
	mark func(machine *unstructured.Unstructured, node *corev1.Node)
}

// groups contains the systems by API group.
var groups = map[string]group{
	provider.SourceMachineK8s:  firstKubermatic,
	provider.SourceMachinesK8s: firstKubermatic,
	provider.SourceClusterK8s:  kubermatic,
	provider.SourceGardener:    sapcloud,
	provider.SourceOpenShift:   openshift,
}

func nodeRef(node *corev1.Node) map[string]any {
	return map[string]any{"kind": "Node", "name": node.Name, "uid": string(node.UID)}
}

func setProviderID(machine *unstructured.Unstructured, in *simcloud.Instance) {
	_ = unstructured.SetNestedField(machine.Object, in.ProviderID, "spec", "providerID")
}
