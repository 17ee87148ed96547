// Package standin is a stand-in for the controllers of the systems from which Machinist can migrate fleets. It
// reconciles the objects of one API group with instances of the simulated cloud. It marks objects, Nodes and instances
// as the real controllers do. A test stops and restarts it, to see what an old controller would do to the fleet.
//
// It has no state of its own, and reads everything from the cluster and the cloud in each pass.
package standin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Kinds, which have the same names in all groups.
const (
	classes     = "MachineClass"
	deployments = "MachineDeployment"
	sets        = "MachineSet"
	machines    = "Machine"
)

// group describes one old system.
type group struct {
	version string
	// parents are the kinds of the objects that own or describe Machines, from the top.
	parents []string
	// parentFinalizer is a finalizer of the parents, and revision is an annotation of deployments. Each may be empty.
	parentFinalizer, revision string
	// finalizers are the finalizers of Machines, and nodeFinalizer is the finalizer of their Nodes. Each may be empty.
	finalizers    []string
	nodeFinalizer string
	// className is the path of the name of the class in a Machine. It is nil without classes.
	className []string
	// instance is the path of the description of the instance in a class, or in a Machine without a class. nodeMeta and
	// taints are the paths of the metadata and taints for the Node in a Machine.
	instance, nodeMeta, taints []string
	// noStatusSubresource is set if the kinds have no status subresource.
	noStatusSubresource bool
	// identify stores the identity of the instance in a Machine. It may be nil.
	identify func(machine *unstructured.Unstructured, in *simcloud.Instance)
	// status returns the status of a Machine with a ready Node.
	status func(node *corev1.Node) map[string]any
	// mark marks a Node as the Node of a Machine.
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
