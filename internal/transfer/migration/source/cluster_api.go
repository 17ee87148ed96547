package source

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeClusterTopology: the topology of a Cluster creates and restores the object.
	CodeClusterTopology = "ClusterTopology"
	// CodeSeveralClusters: the namespace of the old objects has more than one Cluster.
	CodeSeveralClusters = "SeveralClusters"
	// CodeReferenceMissing: an old object refers to an object that does not exist.
	CodeReferenceMissing = "ReferenceMissing"
	// CodeNotPart: an old machine refers to an object that does not belong to the machine.
	CodeNotPart = "NotPart"
	// CodeKubeadmConfig: the old bootstrap config has a field that Machinist's user data does not contain.
	CodeKubeadmConfig = "KubeadmConfig"
)

const (
	clusterAPIControlPlane    = "cluster.x-k8s.io/control-plane"
	clusterAPISetName         = "cluster.x-k8s.io/set-name"
	clusterAPITopologyOwned   = "topology.cluster.x-k8s.io/owned"
	clusterAPIDeleteMachine   = "cluster.x-k8s.io/delete-machine"
	clusterAPISkipRemediation = "cluster.x-k8s.io/skip-remediation"
	clusterAPIRemediate       = "cluster.x-k8s.io/remediate-machine"
	clusterAPISkipDrain       = "machine.cluster.x-k8s.io/exclude-node-draining"
	clusterAPISkipDetach      = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
	clusterAPIUpdating        = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
	clusterAPIPreDrain        = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	clusterAPIPreTerminate    = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"

	clusterAPIControlPlaneGroup = "controlplane.cluster.x-k8s.io"
	clusterAPIBootstrapGroup    = "bootstrap.cluster.x-k8s.io"
	clusterAPINodeDomain        = "node.cluster.x-k8s.io"
	clusterAPISyncedLabels      = "additional-sync-machine-labels"
	clusterAPISyncedAnnotations = "additional-sync-machine-annotations"

	clusterAPIInfrastructureGroup = "infrastructure.cluster.x-k8s.io"
)

// clusterAPI is the current Cluster API. Its machines refer to an infrastructure object, a bootstrap config and a
// Cluster.
type clusterAPI struct{ objects Objects }

func (clusterAPI) Group() string { return provider.SourceClusterAPI }

// With implements Linked.
func (clusterAPI) With(objects Objects) System { return clusterAPI{objects} }

func (s clusterAPI) Kinds() []Kind {
	current := kindsOf(s.Group(), "v1beta2")
	kind := func(role Role, name, resource string) Kind {
		k := current(role, name, resource)
		k.OlderVersions = []string{"v1beta1"}
		k.Optional = role == RoleOther
		return k
	}
	return []Kind{
		kind(RoleHealthCheck, "MachineHealthCheck", "machinehealthchecks"),
		kind(RoleDeployment, "MachineDeployment", "machinedeployments"),
		kind(RoleSet, "MachineSet", "machinesets"),
		kind(RoleMachine, "Machine", "machines"),
		kind(RoleOther, "MachinePool", "machinepools"),
		kind(RoleOther, "MachineDrainRule", "machinedrainrules"),
	}
}

// PausedKind implements Pausable: no controller of Cluster API acts on the objects of a paused Cluster.
func (s clusterAPI) PausedKind() Kind {
	k := kindsOf(s.Group(), "v1beta2")(RoleOther, "Cluster", "clusters")
	k.OlderVersions = []string{"v1beta1"}
	return k
}

// Leases returns the Leases of the core provider and of the cloud's infrastructure provider, as clusterctl installs
// them. The controllers of bootstrap configs and of control planes keep their Leases, because they touch no instance
// of a worker.
func (clusterAPI) Leases(cloud string) []types.NamespacedName {
	leases := []types.NamespacedName{{Namespace: "capi-system", Name: "controller-leader-election-capi"}}
	if short, known := map[string]string{"azure": "capz", "openstack": "capo"}[cloud]; known {
		leases = append(leases, types.NamespacedName{Namespace: short + "-system",
			Name: "controller-leader-election-" + short})
	}
	return leases
}

func (s clusterAPI) NodeTraces() NodeTraces {
	const domain = "cluster.x-k8s.io/"
	return NodeTraces{
		Annotations: []string{domain + "cluster-name", domain + "cluster-namespace", domain + "machine",
			domain + "owner-kind", domain + "owner-name", domain + "labels-from-machine",
			domain + "annotations-from-machine", domain + "taints-from-machine"},
		Labels:      []string{"cluster.x-k8s.io/interruptible"},
		Taints:      []string{clusterAPINodeDomain + "/uninitialized", clusterAPINodeDomain + "/outdated-revision"},
		OwnerGroups: []string{s.Group()},
	}
}

func (clusterAPI) Flags() []string {
	return []string{clusterAPISyncedLabels, clusterAPISyncedAnnotations}
}

func (s clusterAPI) dialect() *dialect {
	return &dialect{
		groups: []string{s.Group(), clusterAPIControlPlaneGroup},
		finalizers: []string{"machine.cluster.x-k8s.io", "cluster.x-k8s.io/machineset",
			"cluster.x-k8s.io/machinedeployment", "machineset.topology.cluster.x-k8s.io",
			"machinedeployment.topology.cluster.x-k8s.io"},
		labels: []string{"machine-template-hash", clusterAPISetName, "cluster.x-k8s.io/interruptible",
			"topology.cluster.x-k8s.io/"},
		annotations: []string{
			"machinedeployment.clusters.x-k8s.io/", "machineset.cluster.x-k8s.io/", "crd-migration.cluster.x-k8s.io/",
			"in-place-updates.internal.cluster.x-k8s.io/", "machine.cluster.x-k8s.io/", clusterAPIPreDrain,
			clusterAPIPreDrain + "/", clusterAPIPreTerminate, clusterAPIPreTerminate + "/", clusterAPIDeleteMachine,
			clusterAPISkipRemediation, clusterAPIRemediate, "cluster.x-k8s.io/conversion-data",
			"cluster.x-k8s.io/cloned-from-name", "cluster.x-k8s.io/cloned-from-groupkind",
			"cluster.x-k8s.io/disable-machine-create", "topology.cluster.x-k8s.io/",
			"controlplane.cluster.x-k8s.io/",
		},
		autoscaler: s.Group(),
		revision:   "machinedeployment.clusters.x-k8s.io/revision",
	}
}

func (s clusterAPI) Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted {
	return convert(old, func(f *fields, c *Converted) {
		r := clusterAPIReader{dialect: s.dialect(), fields: f, converted: c, flags: flags, objects: s.objects,
			namespace: old.GetNamespace(), uid: old.GetUID(), metadata: s.dialect().metadata(f, role)}
		f.readRole(role, map[Role]func(){RoleHealthCheck: r.healthCheck, RoleDeployment: r.deployment, RoleSet: r.set,
			RoleMachine: r.machine, RoleOther: func() { r.other(old.GetKind()) }})
		c.LaterAnnotations = r.metadata.later
	})
}

type clusterAPIReader struct {
	*dialect
	fields    *fields
	converted *Converted
	flags     Flags
	objects   Objects
	namespace string
	uid       types.UID
	metadata  metadata
}

// other reads an object of a kind that Machinist does not have. Such an object stays with the old system.
func (r *clusterAPIReader) other(kind string) {
	if kind == "MachineDrainRule" {
		r.leaveBehind(provider.FindingLoss, CodeNotSupported, "Machinist does not convert this rule. "+
			"Write it to spec.drain.rules of the MachineDeployments after the migration.")
		return
	}
	r.leaveBehind(provider.FindingNote, CodeNotSupported, "Machinist does not manage groups of instances in the cloud. "+
		"The %s stays with the old system, together with its machines.", kind)
}

// staysWithOldSystem reports whether an object belongs to the control plane or to a MachinePool. Such an object is not
// converted, so it has no further findings.
func (r *clusterAPIReader) staysWithOldSystem(labels map[string]string) bool {
	owner := r.metadata.controller
	switch {
	case isOfControlPlane(labels, owner):
		r.leaveBehind(provider.FindingNote, CodeControlPlane, "Machinist does not create control planes. The object "+
			"stays with the old system.")
	case isOfPool(owner):
		r.leaveBehind(provider.FindingNote, CodeNotSupported, "The machine stays with the MachinePool %s.", owner.Name)
	default:
		return false
	}
	return true
}

// isOfControlPlane reports whether an object with these labels and this controller belongs to a control plane.
func isOfControlPlane(labels map[string]string, owner *metav1.OwnerReference) bool {
	_, labelled := labels[clusterAPIControlPlane]
	return labelled || owner != nil && strings.HasPrefix(owner.APIVersion, clusterAPIControlPlaneGroup+"/")
}

func isOfPool(owner *metav1.OwnerReference) bool { return owner != nil && owner.Kind == "MachinePool" }

// leaveBehind replaces the findings of an object that is not converted by one finding.
func (r *clusterAPIReader) leaveBehind(level provider.FindingLevel, code, format string, args ...any) {
	r.fields.ignoreAll()
	r.metadata.later = nil
	r.converted.Findings = nil
	r.fields.report(level, code, "metadata", format, args...)
}

// checkTopology reports an object that a ClusterClass creates. The topology controller would create another one.
func (r *clusterAPIReader) checkTopology() {
	if _, owned := r.metadata.oldLabels[clusterAPITopologyOwned]; owned {
		r.fields.report(provider.FindingBlocker, CodeClusterTopology, "metadata.labels."+clusterAPITopologyOwned,
			"The topology of the Cluster owns the object and would create another one. Cluster API does not allow the "+
				"removal of spec.topology. Leave the object with Cluster API: use --exclude.")
	}
}

// clusterName reads the name of the Cluster. A migration takes over the machines of one Cluster, because the migrator
// sees the Nodes of one workload cluster. If reported is false, the owner of the object has the findings.
func (r *clusterAPIReader) clusterName(f *fields, reported bool) (name string) {
	name = f.text("clusterName")
	if !reported {
		return name
	}
	if name == "" {
		f.report(provider.FindingBlocker, CodeMissingField, "clusterName", "The object does not name its Cluster.")
		return ""
	}
	var others []string
	if r.objects != nil {
		for _, cluster := range r.objects.All(clusterAPICluster, r.namespace) {
			if cluster.GetName() != name {
				others = append(others, cluster.GetName())
			}
		}
	}
	if len(others) > 0 {
		f.report(provider.FindingBlocker, CodeSeveralClusters, "clusterName", "The namespace %s also has the Cluster %s. "+
			"Machinist takes over only the machines of a Cluster that is alone in its namespace.", r.namespace,
			strings.Join(others, ", "))
	}
	return name
}

// objectReference reads a reference to an object in the same namespace. The older version of the API has apiVersion
// instead of apiGroup.
func (f *fields) objectReference(name string) (kind schema.GroupKind, object string) {
	r := f.child(name)
	r.ignore("uid", "resourceVersion", "fieldPath", "namespace")
	group, _, _ := strings.Cut(r.text("apiVersion"), "/")
	if r.has("apiGroup") {
		group = r.text("apiGroup")
	}
	return schema.GroupKind{Group: group, Kind: r.text("kind")}, r.text("name")
}

// ownerOf returns the name of the controlling owner if it has the given kind, or "".
func (r *clusterAPIReader) ownerOf(kind string) string {
	if owner := r.metadata.controller; owner != nil && owner.Kind == kind {
		return owner.Name
	}
	return ""
}

var clusterAPICluster = schema.GroupKind{Group: provider.SourceClusterAPI, Kind: "Cluster"}
