// Package standin is a stand-in for the controllers of the systems from which Machinist can migrate fleets. The
// package reconciles the objects of one API group with instances of a Cloud, and marks objects, Nodes and instances
// like the real controllers. A test can stop and restart the stand-in, to find out what an old controller would do
// to the fleet.
//
// The stand-in has no state of its own. The package reads everything from the cluster and the cloud again and again.
package standin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/pkg/provider"
)

const (
	classes     = "MachineClass"
	deployments = "MachineDeployment"
	sets        = "MachineSet"
	machines    = "Machine"
)

type group struct {
	version string
	// parents contains the kinds that own or describe Machines, beginning with the top-level owner.
	parents                   []string
	parentFinalizer, revision string
	finalizers                []string
	nodeFinalizer             string
	className                 []string
	// instance is the path of the instance's description in a class, or in a Machine if there are no classes. nodeMeta
	// and taints are the paths in a Machine of the metadata and taints for the Node.
	instance, nodeMeta, taints []string
	noStatusSubresource        bool
	// unstableStatus is true if a pause and its end change the status of objects.
	unstableStatus bool
	// identify, if set, stores the identity of the instance in the Machine.
	identify func(machine *unstructured.Unstructured, in Instance)
	status   func(node *corev1.Node) map[string]any
	mark     func(machine *unstructured.Unstructured, node *corev1.Node)
	// reconcile, if set, replaces the reconciliation of all kinds.
	reconcile func(*pass, context.Context) error
}

var groups = map[string]group{
	provider.SourceMachineK8s:  firstKubermatic,
	provider.SourceMachinesK8s: firstKubermatic,
	provider.SourceClusterK8s:  kubermatic,
	provider.SourceGardener:    sapcloud,
	provider.SourceOpenShift:   openshift,
	provider.SourceClusterAPI:  clusterAPI,
}

func nodeRef(node *corev1.Node) map[string]any {
	return map[string]any{"kind": "Node", "name": node.Name, "uid": string(node.UID)}
}

func setProviderID(machine *unstructured.Unstructured, in Instance) {
	_ = unstructured.SetNestedField(machine.Object, in.ProviderID, "spec", "providerID")
}
