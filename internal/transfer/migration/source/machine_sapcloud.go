package source

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	sapcloudTemplateHash = "machine-template-hash"
	// sapcloudNode is the label of a Machine with the name of its Node.
	sapcloudNode = "node"
	// sapcloudForceDeletion is a label. With the value True, the deletion does not wait for the drain.
	sapcloudForceDeletion = "force-deletion"
	// sapcloudFreeze is the label of a set or deployment that creates no machines.
	sapcloudFreeze = "freeze"
	// sapcloudSelected is the label of a Machine that will soon be updated in place.
	sapcloudSelected = "node.machine.sapcloud.io/selected-for-update"

	sapcloudPriority = "machinepriority.machine.sapcloud.io"
	sapcloudMarkTime = "machine.sapcloud.io/marked-for-deletion-time"
	sapcloudPreserve = "node.machine.sapcloud.io/preserve"
	// sapcloudTrigger is an annotation of a deployment. The autoscaler writes the names of the machines to delete into
	// this annotation.
	sapcloudTrigger = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
	// sapcloudCreationTimeout is an annotation of a deployment that overrides the field creationTimeout.
	sapcloudCreationTimeout = "node.machine.sapcloud.io/effective-creation-timeout"
)

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

// Leases returns the Lease for sets and deployments, and the Lease for machines.
func (machineSapcloud) Leases(string) []types.NamespacedName {
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
		// Without this annotation, a user has disabled the scale-down of the Node, and the scale-down stays disabled.
		MarkedAnnotations: map[string]string{
			"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm": v1beta1.NodeAnnotationScaleDownDisabled,
		},
		Taints:      []string{"deployment.machine.sapcloud.io/prefer-no-schedule", domain + "preserved"},
		OwnerGroups: []string{s.Group()},
	}
}

// sapcloudFinalizers are the finalizers of Gardener's objects and of the Secrets of its classes.
var sapcloudFinalizers = []string{
	"machine.sapcloud.io/machine-controller-manager", "machine.sapcloud.io/machine-controller",
}

// Flags of machine-controller-manager.
const (
	sapcloudCreationFlag   = "machine-creation-timeout"
	sapcloudDrainFlag      = "machine-drain-timeout"
	sapcloudUpdateFlag     = "machine-inplace-update-timeout"
	sapcloudDetachFlag     = "machine-pv-detach-timeout"
	sapcloudHealthFlag     = "machine-health-timeout"
	sapcloudConditionsFlag = "node-conditions"
	sapcloudRetriesFlag    = "machine-max-evict-retries"
	sapcloudGroupsFlag     = "bootstrap-token-auth-extra-groups"
)

func (machineSapcloud) Flags() []string {
	return []string{sapcloudCreationFlag, sapcloudDrainFlag, sapcloudUpdateFlag, sapcloudDetachFlag, sapcloudHealthFlag,
		sapcloudConditionsFlag, sapcloudRetriesFlag, sapcloudGroupsFlag}
}

func (s machineSapcloud) dialect() *dialect {
	// The controllers write keys of their own domains and of the domain of Deployments.
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
		c.LaterAnnotations = r.metadata.later
	})
}

type sapcloudReader struct {
	*dialect
	fields    *fields
	converted *Converted
	flags     Flags
	namespace string
	metadata  metadata
}
