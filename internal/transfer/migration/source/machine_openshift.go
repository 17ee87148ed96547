package source

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

const (
	openshiftDeleteMachine    = "machine.openshift.io/delete-machine"
	openshiftOldDeleteMachine = "machine.openshift.io/cluster-api-delete-machine"
	// openshiftSkipDrain skips the drain, whatever its value is.
	openshiftSkipDrain = "machine.openshift.io/exclude-node-draining"
	// openshiftStrategy delegates the remediation of a health check to another controller.
	openshiftStrategy = "machine.openshift.io/remediation-strategy"

	openshiftRole       = "machine.openshift.io/cluster-api-machine-role"
	openshiftType       = "machine.openshift.io/cluster-api-machine-type"
	openshiftMachineSet = "machine.openshift.io/cluster-api-machineset"
	// openshiftMaster is the role and type of control plane machines.
	openshiftMaster = "master"

	// openshiftTerminationCheck is the health check for interruptible instances that every cluster has.
	openshiftTerminationCheck = "machine-api-termination-handler"

	// openshiftReleasePrefix is the prefix of annotations of the objects in OpenShift's release.
	openshiftReleasePrefix = "include.release.openshift.io/"
	// openshiftMachineAutoscaler is an annotation with the name of the MachineAutoscaler that sets the sizes of a set.
	openshiftMachineAutoscaler = "autoscaling.openshift.io/machineautoscaler"

	openshiftCPU     = "machine.openshift.io/vCPU"
	openshiftMemory  = "machine.openshift.io/memoryMb"
	openshiftGPU     = "machine.openshift.io/GPU"
	openshiftMaxPods = "machine.openshift.io/maxPods"
)

const (
	// CodeControlPlane: the machine is part of the control plane and stays with the old system.
	CodeControlPlane = "ControlPlane"
	// CodeAuthoritativeAPI: the old system also has this object in its other API.
	CodeAuthoritativeAPI = "AuthoritativeAPI"
	// CodeOperatorOwned: an operator of the old system restores the object when it is changed or deleted.
	CodeOperatorOwned = "OperatorOwned"
	// CodeMachineAutoscaler: a MachineAutoscaler sets the minimum and maximum size of the set.
	CodeMachineAutoscaler = "MachineAutoscaler"
)

type machineOpenShift struct{}

func (machineOpenShift) Group() string { return provider.SourceOpenShift }

func (s machineOpenShift) Kinds() []Kind {
	kind := kindsOf(s.Group(), "v1beta1")
	return []Kind{
		kind(RoleHealthCheck, "MachineHealthCheck", "machinehealthchecks"),
		kind(RoleSet, "MachineSet", "machinesets"),
		kind(RoleMachine, "Machine", "machines"),
	}
}

// Leases returns the Leases of all old controllers. The list contains a Lease for each cloud, although a cluster only
// has the Lease for its own cloud.
func (machineOpenShift) Leases(string) (all []types.NamespacedName) {
	for _, part := range []string{
		"aws", "azure", "gcp", "openstack", "vsphere", "machineset", "healthcheck", "nodelink",
	} {
		all = append(all, types.NamespacedName{Name: "cluster-api-provider-" + part + "-leader"})
	}
	return all
}

func (s machineOpenShift) NodeTraces() NodeTraces {
	return NodeTraces{Annotations: []string{"machine.openshift.io/machine"}, OwnerGroups: []string{s.Group()}}
}

func (machineOpenShift) Flags() []string { return nil }

func (s machineOpenShift) dialect() *dialect {
	return &dialect{
		groups:     []string{s.Group()},
		finalizers: []string{"machine.machine.openshift.io", "sync.machine.openshift.io/finalizer"},
		labels: []string{
			"machine.openshift.io/instance-type", "machine.openshift.io/region", "machine.openshift.io/zone",
			"machine.openshift.io/interruptible-instance",
		},
		annotations: []string{
			"machine.openshift.io/instance-state", openshiftDeleteMachine, openshiftOldDeleteMachine, openshiftSkipDrain,
			openshiftStrategy, openshiftCPU, openshiftMemory, openshiftGPU, openshiftMaxPods, openshiftMachineAutoscaler,
		},
		autoscaler: s.Group(),
	}
}

func (s machineOpenShift) Convert(role Role, old *unstructured.Unstructured, _ Flags) Converted {
	return convert(old, func(f *fields, c *Converted) {
		r := openshiftReader{dialect: s.dialect(), fields: f, converted: c, namespace: old.GetNamespace(),
			metadata: s.dialect().metadata(f, role)}
		f.readRole(role, map[Role]func(){RoleHealthCheck: r.healthCheck, RoleSet: r.set, RoleMachine: r.machine})
		c.LaterAnnotations = r.metadata.later
	})
}

type openshiftReader struct {
	*dialect
	fields    *fields
	converted *Converted
	namespace string
	metadata  metadata
}

// staysWithOldSystem reports whether an object belongs to the control plane. Such an object is not converted, so it has
// no further findings.
func (r *openshiftReader) staysWithOldSystem(labels map[string]string) bool {
	owner := r.metadata.controller
	if labels[openshiftRole] != openshiftMaster && labels[openshiftType] != openshiftMaster &&
		(owner == nil || owner.Kind != "ControlPlaneMachineSet") {
		return false
	}
	r.leaveBehind(CodeControlPlane, "Machinist does not create control planes. The object stays with the old system.")
	return true
}

// leaveBehind replaces the findings of an object that is not converted by one Note.
func (r *openshiftReader) leaveBehind(code, message string) {
	r.fields.ignoreAll()
	r.metadata.later = nil
	r.converted.Findings = nil
	r.fields.report(provider.FindingNote, code, "metadata", "%s", message)
}

// restoredBy returns the operator that restores the object when it is changed or deleted, or "".
func (r *openshiftReader) restoredBy() string {
	for key := range r.metadata.oldAnnotations {
		if strings.HasPrefix(key, openshiftReleasePrefix) {
			return "the cluster-version operator"
		}
	}
	if r.metadata.oldLabels[hiveManagedLabel] == "true" {
		return "Hive"
	}
	return ""
}

// checkOperator reports a set or machine that an operator would restore after the migration.
func (r *openshiftReader) checkOperator() {
	if operator := r.restoredBy(); operator != "" {
		r.fields.report(provider.FindingBlocker, CodeOtherController, "metadata", "After the migration, %s would "+
			"restore the object, and the old system would create instances for it. Remove the object from that operator.",
			operator)
	}
}

func (r *openshiftReader) checkAuthority(f *fields) {
	const name, message = "authoritativeAPI", "The Cluster API of OpenShift controls the object. Set authoritativeAPI " +
		"to MachineAPI, and wait until the status shows that."
	status := r.fields.observe("status").text(name)
	switch spec := f.text(name); {
	case spec == "ClusterAPI":
		f.report(provider.FindingBlocker, CodeAuthoritativeAPI, name, message)
	case status == "ClusterAPI" || status == "Migrating":
		r.fields.report(provider.FindingBlocker, CodeAuthoritativeAPI, "status."+name, message)
	case spec != "":
		f.report(provider.FindingLoss, CodeAuthoritativeAPI, name, "If the Cluster API of OpenShift has a copy of the "+
			"object, the copy is deleted together with the object.")
	}
}
