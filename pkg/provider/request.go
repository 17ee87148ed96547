package provider

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names of the tags that every instance of Machinist carries. A driver may spell them differently for a cloud that
// restricts tag names, if Create, Get and List use the same spelling.
const (
	// TagCluster holds the cluster ID of the installation that owns the instance.
	TagCluster = "machinist-cluster"
	// TagMachineUID holds the UID of the Machine, by which Machinist finds an instance again.
	TagMachineUID = "machinist-machine-uid"
	// TagMachine holds namespace/name of the Machine, for display.
	TagMachine = "machinist-machine"
)

// Machine identifies the Machine object for which a call is made.
type Machine struct {
	Namespace string
	Name      string
	UID       types.UID
}

// Class describes how an instance is created. Class comes from a MachineClass or from the Machine itself.
type Class struct {
	// Spec is the providerSpec as raw JSON, exactly as the user wrote it. Treat it as hostile until the driver has
	// parsed it strictly. In a GetRequest or DeleteRequest, it is empty if the class no longer exists.
	Spec []byte
	// Credentials are the contents of the class's Secret. Credentials are empty if the class refers to no Secret.
	Credentials Credentials
}

// ValidateRequest asks whether the driver can serve a class.
type ValidateRequest struct {
	Class Class
}

// CapacityRequest asks which resources and labels a node of the class will have.
type CapacityRequest struct {
	Class Class
}

// Capacity describes a node before it exists.
type Capacity struct {
	// Resources are the node's allocatable resources, as far as they are known.
	Resources corev1.ResourceList
	// InstanceType, Region, Zone, Architecture (amd64, arm64, …) and OperatingSystem (linux, …) are the values of the
	// node's well-known labels.
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
	// ClusterID identifies the installation. The field Tags also contains the cluster ID.
	ClusterID string
	// Token makes the request idempotent in the cloud. The token is the same for every retry of one attempt, and has
	// the form "<uid>-<attempt>".
	Token string
	// Tags must be on the instance from the moment of its creation.
	Tags map[string]string
	// UserData is the rendered bootstrap data. UserData is byte-identical for every retry of one attempt. UserData
	// contains secrets.
	UserData Secret
	// Version is the requested kubelet version, such as "v1.36.3". It is empty if the image determines the version.
	Version string
}

// GetRequest asks for one instance.
type GetRequest struct {
	Machine   Machine
	Class     Class
	ClusterID string
	// ProviderID identifies the instance. If ProviderID is empty, Get finds the instance by the tags for ClusterID
	// and Machine.UID.
	ProviderID string
	// Scope is the value that the driver returned in Instance.Scope. It is empty if no value was recorded.
	Scope string
	// CreateHandle is the value that the driver returned in Instance.CreateHandle, while the instance was last known to be
	// in StatePending. Otherwise CreateHandle is empty. While the operation runs, Get returns the instance in
	// StatePending, or NotFound, from which Machinist then concludes nothing. If the operation has failed and left no
	// instance, Get returns NotFound with Error.CreateCode.
	CreateHandle string
}

// UpdateRequest asks to change a running instance so that it matches another specification.
type UpdateRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Scope      string
	// CreateHandle is set as in a GetRequest. While the operation runs, Update answers UpdateInProgress, or fails with
	// Unavailable or NotFound.
	CreateHandle string
	Version      string
	// NodeVersion is the kubelet version that the Node reports. It is empty if there is no Node. After an update by an
	// agent on the node (UpdateByAgent), the cloud may report a different version.
	NodeVersion string
	// NodeDrained is true if the node was cordoned and drained for this update. A driver that needs the drain answers
	// UpdateNeedsDrain while NodeDrained is false.
	NodeDrained bool
}

// UpdateOutcome is a driver's answer to Update.
type UpdateOutcome string

const (
	// UpdateDone: the instance matches the specification.
	UpdateDone UpdateOutcome = "Done"
	// UpdateInProgress: the cloud is changing the instance. Machinist calls Update again.
	UpdateInProgress UpdateOutcome = "InProgress"
	// UpdateNeedsDrain: the driver can change the instance in place when the node is drained.
	UpdateNeedsDrain UpdateOutcome = "NeedsDrain"
	// UpdateNeedsReplacement: only a new instance can satisfy the specification.
	UpdateNeedsReplacement UpdateOutcome = "NeedsReplacement"
	// UpdateByAgent: an agent on the node has to install UpdateRequest.Version, and everything else matches the
	// specification. Machinist drains the node, requests the update from the agent and waits for it. Machinist does not
	// call Update again for this request.
	UpdateByAgent UpdateOutcome = "ByAgent"
	// UpdateRefused: neither a change in place nor a replacement can satisfy the specification. The running instance
	// stays as it is.
	UpdateRefused UpdateOutcome = "Refused"
)

// UpdateResult is the answer to an UpdateRequest.
type UpdateResult struct {
	Outcome UpdateOutcome
	// Reason explains UpdateNeedsReplacement and UpdateRefused.
	Reason string
	// Instance is the current state of the instance, if the driver knows it without another call. Drivers that
	// implement Power always set Instance.
	Instance *Instance
}

// DeleteRequest asks to delete one instance.
type DeleteRequest struct {
	Machine   Machine
	Class     Class
	ClusterID string
	// ProviderID identifies the instance. If ProviderID is empty, Delete finds the instance by the tags for ClusterID
	// and Machine.UID.
	ProviderID string
	Scope      string
	// CreateHandle is set as in a GetRequest. Delete cancels the operation, or does not report Gone until the operation
	// has ended and its instance is gone.
	CreateHandle string
}

// DeleteResult is the answer to a DeleteRequest.
type DeleteResult struct {
	// Gone is true if the instance and everything that belongs to it no longer exist. If Gone is false, the cloud has
	// accepted the deletion but not completed it. Machinist then calls Delete again.
	Gone bool
	// Found is true if this call found the instance. If Found and Gone are both true, the cloud deleted the instance
	// within the call. If Gone is true and Found is false, the answer may come from a read that lags behind. Machinist
	// then confirms with Get that there is no instance, and waits if the instance was created less than CreateSettle
	// ago.
	Found bool
	// Remaining contains the resources that still exist while Gone is false, such as "volume 1a2b (available)". For a
	// resource that the cloud refuses to delete now, Remaining also contains the cloud's answer, such as "volume
	// 1a2b: it has snapshots". Machinist shows this text to users when a deletion takes minutes. Remaining may be
	// empty. The driver should return the same text as long as the resources and their states do not change.
	Remaining string
}

// AdoptRequest asks to set Machinist's tags on an existing instance.
type AdoptRequest struct {
	Machine    Machine
	Class      Class
	ClusterID  string
	ProviderID string
	Tags       map[string]string
	// FormerIdentity contains the identity that the Machine had before its control cluster was lost or moved. Adopt
	// replaces tags on the instance only if they are the tags of this identity. Nil means that Adopt replaces no
	// tags. A user who may write classes chooses the cluster in this identity. Therefore Adopt uses the identity only
	// if the instance is in the scope of the class (see Adopter).
	FormerIdentity *Identity
}

// Identity is the owner of an instance according to the tags of the instance.
type Identity struct {
	ClusterID  string
	MachineUID types.UID
}

// Replaces reports whether the instance carries the tags of FormerIdentity, so that Adopt replaces them with
// req.Tags.
func (r AdoptRequest) Replaces(in *Instance) bool {
	return r.FormerIdentity != nil && r.FormerIdentity.ClusterID != "" && r.FormerIdentity.MachineUID != "" &&
		in.ClusterID == r.FormerIdentity.ClusterID && in.MachineUID == r.FormerIdentity.MachineUID
}

// ListRequest asks for one page of the instances of one cluster.
type ListRequest struct {
	Class     Class
	ClusterID string
	// Continue selects the page. It is empty for the first page. For each later page, it is the value of
	// ListPage.Continue in the previous page.
	Continue string
}

// ListPage is one page of instances.
type ListPage struct {
	Instances []Instance
	// Leftovers are parts that carry the cluster's tag and belong to no instance. A Delete call without a provider ID
	// deletes such parts. If a driver's parts cannot exist without their instance, it returns no Leftovers.
	Leftovers []Leftover
	// Continue is empty on the last page.
	Continue string
}
