package provider

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Importer is implemented by drivers that can take over the instances of other machine controllers. Without Importer, a
// Migration of the provider is blocked.
//
// All methods are idempotent. Methods that change an instance guard against concurrent changes, for example with an
// ETag.
type Importer interface {
	// Locate returns the instances that the old system created from one description in one account. Locate finds the
	// instances by the tags or names that the old system gave to instances. If nothing distinguishes the clusters of
	// the old system, Locate also returns the instances of other clusters. The caller ignores instances that no old
	// Machine names.
	Locate(ctx context.Context, req LocateRequest) ([]LocatedInstance, error)

	// Import translates a description of the old system into a providerSpec that Validate accepts and that matches
	// the running instance. The method makes no call to the cloud. For everything that it cannot translate, Import
	// returns a Finding with the path of the old field. Unknown fields are findings too. A driver must not ignore a
	// field without a Finding. Import returns InvalidArgument if it cannot read the description at all.
	//
	// The migrator calls Import a second time with made-up values in place of the values from Secrets. If a part of
	// ImportedSpec.Spec differs between the two calls, the part depends on Secrets. Plans do not show such parts.
	//
	// Import returns Unimplemented if Legacy.Provider is another cloud, or if the driver does not know Legacy.Source.
	// Before the migrator reads Secrets, it calls Import with an empty description to find this out.
	Import(ctx context.Context, req ImportRequest) (ImportedSpec, error)

	// Release removes the tags by which the old system would recognize the instance as its own and delete it. Release
	// removes these tags from the Machine's instance and its parts, and keeps all other tags. The method succeeds if
	// there is nothing to remove. The method fails with FailedPrecondition if the instance does not carry the tags of
	// the cluster and the Machine, and with NotFound if there is no such instance.
	Release(ctx context.Context, req ReleaseRequest) error

	// Disown removes Machinist's tags, and nothing else, so that the instance is as it was before Adopt. The method
	// removes only the tags of exactly this cluster and Machine. The method succeeds if the instance has no tags of
	// Machinist or does not exist. The method fails with FailedPrecondition if the instance has the tags of another
	// cluster or Machine.
	Disown(ctx context.Context, req DisownRequest) error
}

// The systems from which fleets can be taken over, named by the API group of their machines.
const (
	// SourceMachineK8s and SourceMachinesK8s have cluster-scoped Machines only.
	SourceMachineK8s  = "machine.k8s.io"
	SourceMachinesK8s = "machines.k8s.io"
	// SourceClusterK8s has Machines, MachineSets and MachineDeployments, whose providerSpec is opaque.
	SourceClusterK8s = "cluster.k8s.io"
	// SourceGardener has Machines, MachineSets, MachineDeployments and MachineClasses.
	SourceGardener = "machine.sapcloud.io"
	// SourceOpenShift has Machines, MachineSets and MachineHealthChecks.
	SourceOpenShift = "machine.openshift.io"
	// SourceClusterAPI has Machines, MachineSets, MachineDeployments and MachineHealthChecks, which refer to objects of
	// an infrastructure provider.
	SourceClusterAPI = "cluster.x-k8s.io"
)

// Sources returns all systems from which fleets can be taken over.
func Sources() []string {
	return []string{SourceMachineK8s, SourceMachinesK8s, SourceClusterK8s, SourceGardener, SourceOpenShift,
		SourceClusterAPI}
}

// Legacy is an old system's description of instances.
type Legacy struct {
	// Source is the API group of the old system, such as SourceGardener.
	Source string
	// Provider is the old system's name for the cloud, as written in the description, such as "azure" or "Azure".
	// Without such a name, Provider is the kind of the description, such as AzureMachineProviderSpec.
	Provider string
	// Spec is the part of the old object that describes the instance, as JSON. The description may contain secrets.
	// The field of the old object depends on the old system:
	//
	//   - machine.k8s.io, machines.k8s.io, cluster.k8s.io: the field cloudProviderSpec. Every reference to a Secret or
	//     ConfigMap is replaced by its value. The key sshPublicKeys, a list of strings, is added: the old object has
	//     the SSH public keys next to cloudProviderSpec. A description of cluster.k8s.io that has a kind instead of a
	//     cloudProvider is given as a whole.
	//   - machine.sapcloud.io: the field providerSpec of the MachineClass.
	//   - machine.openshift.io: the field providerSpec.value.
	//   - cluster.x-k8s.io: an object with the keys machine (the spec of the infrastructure machine, such as an
	//     AzureMachine), cluster (the spec of the infrastructure cluster), clusterStatus (network and
	//     workerSecurityGroup of its status), clusterName, and, if set, failureDomain (of the Machine) and identity (the
	//     spec of the object with which the old controller logs in). Provider is the kind of the infrastructure machine.
	Spec Secret
	// Credentials are the entries of the old system's Secret, under the keys of that system. The keys can also be names
	// of environment variables of the old controller, such as OS_AUTH_URL. If a field of Spec is null or missing, the
	// old controller may have read the value from such a variable.
	Credentials Credentials
}

// LocateRequest asks for the instances that were created from one old description.
type LocateRequest struct {
	Legacy Legacy
}

// LocatedInstance is an instance that an old system created.
type LocatedInstance struct {
	// Instance is the instance as the cloud reports it. The provider ID in this field has the same spelling as in
	// Driver.Get.
	Instance Instance
	// Machine is the name of the old Machine, from a tag or from the instance's name. MachineUID is the UID of the old
	// Machine from a tag. An unknown name or UID is empty.
	Machine    string
	MachineUID types.UID
	// IsCollected is true if the old system would delete the instance or one of its parts because of their tags.
	IsCollected bool
	// NotAdoptable explains why Adopt refuses the instance, such as a missing mark, and what an administrator has to
	// do. It is empty if the driver knows no reason. The migration begins only when NotAdoptable is empty for all
	// instances.
	NotAdoptable string
	// Facts contains what Import needs to know about the instance. The content is opaque to the caller, at most 8
	// KiB, and contains no secrets.
	Facts []byte
}

// ImportRequest asks for the translation of one old description.
type ImportRequest struct {
	Legacy Legacy
	// Facts are what Locate returned in LocatedInstance.Facts for one instance of the description. If the description
	// has no instance, Facts are empty.
	Facts []byte
}

// ImportedSpec is the translation of an old description for Machinist.
type ImportedSpec struct {
	// Spec is the providerSpec, as JSON with apiVersion and kind.
	Spec []byte
	// Credentials contains the data of the Secret for the MachineClass, with the keys that the driver uses. Nil means
	// that the class needs no Secret.
	Credentials map[string][]byte
	// Findings are what an administrator must know or decide.
	Findings []Finding
}

// FindingLevel is the effect that a Finding has on a migration.
type FindingLevel string

const (
	// FindingBlocker: the migration cannot begin. ImportedSpec.Spec contains everything that could be translated.
	FindingBlocker FindingLevel = "Blocker"
	// FindingLoss: the migration would lose something of the old system. An administrator must accept this.
	FindingLoss FindingLevel = "Loss"
	// FindingNote: something will differ after the migration. An administrator does not have to accept a Note before
	// the migration.
	FindingNote FindingLevel = "Note"
)

// Codes for findings, which all drivers use. A driver can define additional codes.
const (
	// FindingUnknownField is the code of a Loss: the driver does not know the field.
	FindingUnknownField = "UnknownField"
	// FindingRequiredField is the code of a Blocker: the description lacks something that providerSpec needs. To remove
	// the finding, add the value with an override of the converted class. Validate must accept the class with the
	// override.
	FindingRequiredField = "RequiredField"
	// FindingInvalidField is the code of a Blocker: the driver cannot translate the type or the form of the value. An
	// override can remove the finding, as for FindingRequiredField.
	FindingInvalidField = "InvalidField"
	// FindingMissingCredentials is the code of a Blocker: the credentials of the old system lack keys. Drivers create
	// it with legacy.MissingCredentials, at most once for each description. The migrator adds how to supply the keys.
	FindingMissingCredentials = "MissingCredentials"
)

// Finding reports a problem or a difference in the translation of one field.
type Finding struct {
	Level FindingLevel
	// Code is the kind of the finding in CamelCase, such as UnknownField. An administrator accepts losses by their
	// codes.
	Code string
	// Path is the path of the old field, such as spec.providerSpec.value.diskType. In the findings of a driver, the
	// path begins at the description that the driver received.
	Path string
	// Message explains what the finding means and what to do. The message contains no secrets, and no values of
	// fields that may contain secrets.
	Message string
}

// ReleaseRequest asks to remove an old system's tags from an instance.
type ReleaseRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
	// Source is the API group of the old system.
	Source string
}

// DisownRequest asks to remove Machinist's tags from an instance.
type DisownRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
}
