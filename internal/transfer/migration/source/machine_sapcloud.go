package source

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Keys of Gardener's machine-controller-manager that have a meaning for Machinist.
const (
	sapcloudTemplateHash = "machine-template-hash"
	// sapcloudNode is the label with the name of a Machine's Node.
	sapcloudNode = "node"
	// sapcloudForceDeletion is a label. If its value is True, the deletion of the Machine does not wait for the drain.
	sapcloudForceDeletion = "force-deletion"
	// sapcloudFreeze is the label of a set or deployment that currently creates no machines.
	sapcloudFreeze = "freeze"
	// sapcloudSelected is the label of a Machine that is about to be updated in place.
	sapcloudSelected = "node.machine.sapcloud.io/selected-for-update"

	sapcloudPriority = "machinepriority.machine.sapcloud.io"
	sapcloudMarkTime = "machine.sapcloud.io/marked-for-deletion-time"
	sapcloudPreserve = "node.machine.sapcloud.io/preserve"
	// sapcloudTrigger is the annotation of a deployment in which the autoscaler names machines to delete.
	sapcloudTrigger = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// sapcloudCreationTimeout is the annotation of a deployment that overrides creationTimeout.
	sapcloudCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
)

// machineSapcloud is the API of Gardener's machine-controller-manager.
type machineSapcloud struct{}

func (machineSapcloud) Group() string { return provider.SourceGardener }

func (s machineSapcloud) Kinds() []Kind {
	kind := kindsOf(s.Group(), "v1alpha1")
	return []Kind{
		kind(RoleClass, "MachineClass", "machineclasses"),
		kind(RoleDeployment, "MachineDeployment", "machinedeployments"),
		kind(RoleSet, "MachineSet", "machinesets"),
		kind(RoleMachine, "Machine", "machines"),
	}
}

// Leases returns the Lease of the controllers of sets and deployments, and that of the controllers of machines.
func (machineSapcloud) Leases() []types.NamespacedName {
	return []types.NamespacedName{{Name: "machine-controller-manager"}, {Name: "machine-controller"}}
}

func (s machineSapcloud) NodeTraces() NodeTraces {
	const domain = "node.machine.sapcloud.io/"
	return NodeTraces{
		Finalizers: []string{domain, "machine.sapcloud.io/"},
		Labels:     []string{domain + "candidate-for-update", sapcloudSelected, domain + "update-result"},
		Annotations: []string{
			domain + "last-applied-anno-labels-taints", domain + "last-applied-virtual-capacity",
			domain + "last-applied-node-preserve-value", domain + "update-failed-reason",
		},
		// Only the mark shows who disabled scaling down. If a user did, it stays disabled.
		Marked: map[string]string{
			"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm": v1beta1.NodeAnnotationScaleDownDisabled,
		},
		Taints:      []string{"deployment.machine.sapcloud.io/prefer-no-schedule", domain + "preserved"},
		OwnerGroups: []string{s.Group()},
	}
}

// sapcloudFinalizers are the finalizers on its objects, and on the Secrets that its classes refer to.
var sapcloudFinalizers = []string{
	"machine.sapcloud.io/machine-controller-manager", "machine.sapcloud.io/machine-controller",
}

func (s machineSapcloud) dialect() *dialect {
	// The controllers write into two domains of their own, and into the domain of Kubernetes' Deployments.
	own := []string{"node.machine.sapcloud.io/", "machine.sapcloud.io/"}
	return &dialect{
		groups:     []string{s.Group()},
		finalizers: sapcloudFinalizers,
		labels:     append([]string{sapcloudTemplateHash, sapcloudNode, sapcloudForceDeletion, sapcloudFreeze}, own...),
		annotations: append([]string{"deployment.kubernetes.io/", sapcloudPriority,
			"safety.machine.sapcloud.io/"}, own...),
		revision: "deployment.kubernetes.io/revision",
	}
}

func (s machineSapcloud) Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted {
	return convert(old, func(f *fields, c *Converted) {
		r := sapcloudReader{dialect: s.dialect(), fields: f, converted: c, flags: flags,
			namespace: old.GetNamespace(), metadata: s.dialect().metadata(f, role)}
		f.readRole(role, map[Role]func(){RoleClass: r.class, RoleDeployment: r.deployment, RoleSet: r.set,
			RoleMachine: r.machine})
		c.Later = r.metadata.later
	})
}

// sapcloudReader reads one object.
type sapcloudReader struct {
	*dialect
	fields    *fields
	converted *Converted
	flags     Flags
	namespace string
	metadata  metadata
}
