package provider

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Importer is implemented by drivers that take over the instances of other systems. Without it a Migration of the
// provider is blocked.
//
// All methods can be repeated. Those that change an instance guard against a change in between, as by an ETag.
type Importer interface {
	// Locate returns the instances that the old system has made with one description and account. It lists by what the
	// old system left at the cloud: tags, names, or both. It returns those of other clusters of the same old system as
	// well where nothing at the cloud distinguishes them; the caller takes only those that an old Machine names.
	Locate(ctx context.Context, req LocateRequest) ([]Located, error)

	// Import translates a description of the old system into a providerSpec that Validate accepts, with all that the
	// running instance has. It makes no call to the cloud. What cannot be translated is a Finding with the path of the old
	// field, never left out silently: the driver reports every field that it does not know. InvalidArgument means that
	// the description cannot be read at all.
	Import(ctx context.Context, req ImportRequest) (Imported, error)

	// Release removes, from an instance of the Machine's and from its parts, the tags by which the old system would
	// collect it. All other tags stay. It fails with FailedPrecondition when the instance does not carry the tags of
	// the cluster and the Machine, with NotFound when there is no such instance, and succeeds when there is nothing to
	// remove.
	Release(ctx context.Context, req ReleaseRequest) error

	// Disown removes Machinist's tags, and nothing else, from an instance that carries exactly those of the cluster and
	// the Machine: the instance is as it was before Adopt. An instance without our tags, or none at all, is success;
	// one with the tags of another cluster or Machine is FailedPrecondition.
	Disown(ctx context.Context, req DisownRequest) error
}

// The systems that fleets are taken over from, named by the API group of their machines.
const (
	// SourceMachineK8s and SourceMachinesK8s have cluster-scoped Machines only.
	SourceMachineK8s  = "machine.k8s.io"
	SourceMachinesK8s = "machines.k8s.io"
	// SourceClusterK8s has Machines, MachineSets and MachineDeployments with an opaque providerSpec.
	SourceClusterK8s = "cluster.k8s.io"
	// SourceGardener has the same with MachineClasses.
	SourceGardener = "machine.sapcloud.io"
	// SourceOpenShift has Machines, MachineSets and MachineHealthChecks.
	SourceOpenShift = "machine.openshift.io"
)

// Sources are all of them.
func Sources() []string {
	return []string{SourceMachineK8s, SourceMachinesK8s, SourceClusterK8s, SourceGardener, SourceOpenShift}
}

// Legacy is the description of instances in an old system.
type Legacy struct {
	// Source is the API group of the old system, such as SourceGardener.
	Source string
	// Provider is the old system's name of the cloud as written there, such as "azure" or "Azure". A kind such as
	// AzureMachineProviderSpec where the system has no other name for it.
	Provider string
	// Spec is the part of the old object that describes the instance, as JSON: cloudProviderSpec with every reference to
	// a Secret or ConfigMap replaced by its value (machine.k8s.io, machines.k8s.io, cluster.k8s.io), providerSpec of the
	// MachineClass (machine.sapcloud.io), providerSpec.value (machine.openshift.io). It may hold secrets.
	//
	// The SSH public keys, a list of strings that is beside cloudProviderSpec in the old object, are in it by the key
	// sshPublicKeys. A description of cluster.k8s.io that has a kind instead of a cloudProvider is there as a whole.
	Spec Secret
	// Credentials are the entries of the old system's Secret, by its keys.
	Credentials Credentials
}

// LocateRequest asks for the instances of one old description.
type LocateRequest struct {
	Legacy Legacy
}

// Located is an instance that an old system has made.
type Located struct {
	// Instance is what the cloud says, with the provider ID as Machinist spells it.
	Instance Instance
	// Machine is the name of the old Machine, from a tag or from the instance's name; MachineUID its UID where the old
	// system tags it. Empty where nothing tells.
	Machine    string
	MachineUID types.UID
	// Collected reports whether the instance or a part of it carries tags by which the old system would collect it.
	Collected bool
	// Facts is what Import needs to know of the instance, opaque to the caller; at most 8 KiB, no secrets.
	Facts []byte
}

// ImportRequest asks for the translation of one old description.
type ImportRequest struct {
	Legacy Legacy
	// Facts are those of one instance of that description; empty when there is none.
	Facts []byte
}

// Imported is a description in Machinist's terms.
type Imported struct {
	// Spec is the providerSpec, JSON with its apiVersion and kind.
	Spec []byte
	// Credentials are the entries of the credentials Secret that Machinist's classes need, by Machinist's keys. Nil: none.
	Credentials map[string][]byte
	// Findings are what a person has to know, or to decide.
	Findings []Finding
}

// FindingLevel says what a Finding means for a migration.
type FindingLevel string

const (
	// FindingBlocker: the migration cannot begin. Imported.Spec then has all that could be translated.
	FindingBlocker FindingLevel = "Blocker"
	// FindingLoss: something of the old system does not come over. A person has to accept it.
	FindingLoss FindingLevel = "Loss"
	// FindingNote: something is different afterwards; nobody has to decide.
	FindingNote FindingLevel = "Note"
)

// Codes that all drivers use. Others are the driver's own.
const (
	// FindingUnknownField: a Loss, the driver does not know the field.
	FindingUnknownField = "UnknownField"
	// FindingRequiredField: a Blocker, the description lacks what providerSpec needs. It is settled when an override of
	// the converted class gives it, so that Validate accepts the result.
	FindingRequiredField = "RequiredField"
	// FindingInvalidField: a Blocker, the value is of a type or form that the driver cannot translate. It is settled as
	// FindingRequiredField is.
	FindingInvalidField = "InvalidField"
)

// Finding is what a person has to know about the translation of a field.
type Finding struct {
	Level FindingLevel
	// Code names what was found, in CamelCase, such as UnknownField. A person accepts losses by it.
	Code string
	// Path is that of the old field, such as spec.providerSpec.value.diskType; below the description in what a driver
	// returns.
	Path string
	// Message says what it means and what to do. No secrets, and no value of a field that may hold one.
	Message string
}

// ReleaseRequest asks to remove an old system's tags.
type ReleaseRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
	// Source is the API group of the old system.
	Source string
}

// DisownRequest asks to remove Machinist's tags.
type DisownRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
}
