// Package standin is a stand-in for the controllers of the systems whose fleets Machinist takes over. It serves the
// objects of one API group with instances of the simulated cloud, and leaves the traces on objects, Nodes and instances
// by which the real controllers know what is theirs. A test kills it and starts it again: what it then does is what an
// old controller would do to the fleet.
//
// It reads everything anew in each pass, so it knows nothing but what is in the cluster and at the cloud.
package standin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// The kinds, which all groups name alike.
const (
	classes     = "MachineClass"
	deployments = "MachineDeployment"
	sets        = "MachineSet"
	machines    = "Machine"
)

// group is how one old system works.
type group struct {
	version string
	// parents are its kinds above Machines that the controller reads, from the top.
	parents []string
	// parentFinalizer is on the parents, revision an annotation of theirs. Empty: there is none.
	parentFinalizer, revision string
	// finalizers are on Machines, nodeFinalizer on their Nodes. Empty: there is none.
	finalizers    []string
	nodeFinalizer string
	// className is where a Machine has the name of its class. Nil: there are no classes.
	className []string
	// instance is where a class, or a Machine without one, describes the instance, and nodeMeta and taints are where a
	// Machine has what its Node gets.
	instance, nodeMeta, taints []string
	// wholeStatus: there is no subresource for the status.
	wholeStatus bool
	// identify notes down on a Machine which instance is its own. Nil: nothing does.
	identify func(machine *unstructured.Unstructured, in *simcloud.Instance)
	// status is what the status of a Machine says of its Node.
	status func(node *corev1.Node) map[string]any
	// mark leaves on a Node what it has to do with a Machine.
	mark func(machine *unstructured.Unstructured, node *corev1.Node)
}

// groups are the systems that there are stand-ins for, by their API groups.
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
