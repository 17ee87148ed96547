package provider

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tags that every instance of Machinist's carries at the provider. A cloud that restricts the form of tag names may
// spell them otherwise, as long as Create, Get and List agree.
const (
	// TagCluster holds the cluster id of the installation that owns the instance.
	TagCluster = "machinist-cluster"
	// TagMachineUID holds the UID of the Machine, the identity by which a lost instance is found again.
	TagMachineUID = "machinist-machine-uid"
	// TagMachine holds namespace/name of the Machine, for people.
	TagMachine = "machinist-machine"
)

// Machine names the Machine object for which a call is made.
type Machine struct {
	Namespace string
	Name      string
	UID       types.UID
}

// Class is what describes an instance to make, whether it came from a MachineClass or inline from the Machine.
type Class struct {
	// Spec is the providerSpec, raw JSON, as the user wrote it: hostile until the driver has parsed it strictly. It is
	// empty in a GetRequest or DeleteRequest when the class is gone.
	Spec []byte
	// Credentials are those of the Secret that the class refers to; empty when it refers to none.
	Credentials Credentials
}

// ValidateRequest asks whether a class can be served.
type ValidateRequest struct {
	Class Class
}

// CapacityRequest asks what a node of the class will offer.
type CapacityRequest struct {
	Class Class
}

// Capacity describes a node before it exists.
type Capacity struct {
	// Resources are the node's allocatable resources as far as known.
	Resources corev1.ResourceList
	// InstanceType, Region, Zone, Architecture (amd64, arm64, …) and OperatingSystem (linux, …) are those that the node's
	// well-known labels will show.
	InstanceType    string
	Region          string
	Zone            string
	Architecture    string
	OperatingSystem string
}

// CreateRequest asks for one instance.
type CreateRequest struct {
	Machine Machine
	Class   Class
	// ClusterID identifies the installation; it is also in Tags.
	ClusterID string
	// Token makes the request idempotent at the cloud: equal for every retry of one attempt, "<uid>-<attempt>".
	Token string
	// Tags must be on the instance from its first moment.
	Tags map[string]string
	// UserData is the rendered bootstrap data, byte-identical for every retry of one attempt. It holds secrets.
	UserData Secret
	// Version is the kubelet version wanted, "v1.36.3"; empty when the user left it to the image.
	Version string
}

// GetRequest asks for one instance.
type GetRequest struct {
	Machine   Machine
	Class     Class
	ClusterID string
	// ProviderID identifies the instance; empty: look it up by the tags for ClusterID and Machine.UID.
	ProviderID string
	// Scope is the locator that the driver gave with the Instance; empty when none was recorded.
	Scope string
}

// UpdateRequest asks to bring a running instance to another specification.
type UpdateRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
	Version    string
	// NodeVersion is the kubelet version that the node reports, empty where there is none. Where an agent on the node
	// changes it (UpdateByAgent) the cloud may know of another one.
	NodeVersion string
	// Drained is true when the node was cordoned and drained for this update. A driver that needs the drain and sees
	// false answers UpdateNeedsDrain.
	Drained bool
}

// UpdateOutcome is a driver's answer to Update.
type UpdateOutcome string

const (
	// UpdateDone: the instance is as wanted.
	UpdateDone UpdateOutcome = "Done"
	// UpdateInProgress: the cloud is running; Update is called again.
	UpdateInProgress UpdateOutcome = "InProgress"
	// UpdateNeedsDrain: it can be done in place, once the node is drained.
	UpdateNeedsDrain UpdateOutcome = "NeedsDrain"
	// UpdateNeedsReplacement: only a new instance can satisfy the specification.
	UpdateNeedsReplacement UpdateOutcome = "NeedsReplacement"
	// UpdateByAgent: an agent on the node brings it to UpdateRequest.Version, and all else is as wanted. Machinist drains
	// the node, asks the agent and waits for it; Update is not called again for this.
	UpdateByAgent UpdateOutcome = "ByAgent"
	// UpdateRefused: neither in place nor by replacement; the running instance is kept as it is.
	UpdateRefused UpdateOutcome = "Refused"
)

// UpdateResult is the answer to an UpdateRequest.
type UpdateResult struct {
	Outcome UpdateOutcome
	// Reason says why, for UpdateNeedsReplacement and UpdateRefused.
	Reason string
	// Instance is the state seen, when the driver has it at hand.
	Instance *Instance
}

// DeleteRequest asks for the removal of one instance.
type DeleteRequest struct {
	Machine   Machine
	Class     Class
	ClusterID string
	// ProviderID identifies the instance; empty: the one with the tags for ClusterID and Machine.UID.
	ProviderID string
	Scope      string
}

// DeleteResult is the answer to a DeleteRequest.
type DeleteResult struct {
	// Gone is true when nothing of the instance is left. False: the cloud has accepted the removal, which is under way;
	// call again.
	Gone bool
	// Found is true when this call found the instance. It matters together with Gone: then the cloud has removed the
	// instance within the call. Gone alone may also mean that a read is behind, so Machinist confirms it by Get, and waits
	// if the instance was created less than CreateSettle ago.
	Found bool
	// Left names what is left while Gone is false, such as "volume 1a2b (available)", and repeats what the cloud answers
	// about each part that it does not remove now, such as "volume 1a2b: it has snapshots". Machinist shows it when the
	// removal takes minutes. It may be empty, and should not change with each call.
	Left string
}

// AdoptRequest asks to tag an existing instance.
type AdoptRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Tags       map[string]string
	// Former is the identity whose tags are replaced, if the instance carries exactly those: that of the Machine before
	// its control cluster was lost or moved. Nil: no tags of others are replaced.
	Former *Identity
}

// Identity is whose an instance is by its tags.
type Identity struct {
	ClusterID  string
	MachineUID types.UID
}

// Replaces reports whether the tags of an instance are those of Former, which the request's own replace.
func (r AdoptRequest) Replaces(in *Instance) bool {
	return r.Former != nil && r.Former.ClusterID != "" && r.Former.MachineUID != "" &&
		in.ClusterID == r.Former.ClusterID && in.MachineUID == r.Former.MachineUID
}

// ListRequest asks for the instances of one cluster.
type ListRequest struct {
	Class     Class
	ClusterID string
	// Continue is empty for the first page, then ListPage.Continue.
	Continue string
}

// ListPage is one page of instances.
type ListPage struct {
	Instances []Instance
	// Leftovers are parts that carry the cluster's tag and belong to no instance. A driver lists those that its Delete
	// without a provider ID removes; one whose parts cannot outlive their instance lists none.
	Leftovers []Leftover
	// Continue is empty on the last page.
	Continue string
}
