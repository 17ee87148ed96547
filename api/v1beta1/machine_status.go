package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineStatus is what was observed of a machine. Only its provider process writes it, except for the condition
// RemediationRequested.
type MachineStatus struct {
	// observedGeneration is the generation of the Machine that was last acted upon.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is where in its life the machine is.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`

	// nodeRef is the Node that the machine became.
	// +optional
	NodeRef *NodeRef `json:"nodeRef,omitempty"`

	// nodeTemplate names what of spec.node is on the Node. What of it is wanted no longer is taken off the Node again;
	// all else that is there belongs to others. It is kept here and not on the Node, whose kubelet may write to that.
	// +optional
	NodeTemplate *AppliedNodeTemplate `json:"nodeTemplate,omitempty"`

	// addresses of the instance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`

	// instance is what the provider says of the instance, and all that its deletion needs when the class is gone.
	// +optional
	Instance *InstanceStatus `json:"instance,omitempty"`

	// launch tells the attempts to make the instance apart.
	// +optional
	Launch *LaunchStatus `json:"launch,omitempty"`

	// version of the kubelet that was observed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// applied is what the running instance was made from. It is {} while that is not known, as the specification was
	// changed during its creation.
	// +optional
	Applied *AppliedStatus `json:"applied,omitempty"`

	// lastOperation is what was last done to the instance.
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`

	// failureReason says in one word why the machine is Failed. Set if the phase is Failed, and kept while a machine that
	// failed is being deleted.
	// +optional
	FailureReason MachineFailureReason `json:"failureReason,omitempty"`

	// failureMessage says in a sentence why the machine is Failed. Set if and only if failureReason is.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	FailureMessage string `json:"failureMessage,omitempty"`

	// interruptionTime is when the cloud reclaims the instance, as announced or, where no time was announced, as estimated
	// from the usual length of such a notice. Set while the condition InterruptionNotice is True.
	// +optional
	InterruptionTime *metav1.Time `json:"interruptionTime,omitempty"`

	// conditions of the machine: Launched, Registered, NodeHealthy, UpToDate, Drained, VolumesDetached, Ready, Deleting,
	// Paused, InterruptionNotice, RemediationRequested.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AppliedNodeTemplate names what was put on a Node from spec.node.
type AppliedNodeTemplate struct {
	// nodeUID is that of the Node.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	NodeUID types.UID `json:"nodeUID"`

	// labels are the keys of its labels.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	Labels []string `json:"labels,omitempty"`

	// annotations are the keys of its annotations.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`

	// taints are its taints, without their values: "dedicated:NoSchedule". Startup taints are not among them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=334
	Taints []string `json:"taints,omitempty"`

	// former has the values that the Node had before. What is wanted no longer gets its former value again.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=192
	Former []FormerValue `json:"former,omitempty"`

	// deviations are what the user data should have done and did not, as the Node showed when it registered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Deviations []NodeDeviation `json:"deviations,omitempty"`

	// inService is true if the Node may have run pods before. Startup taints do not concern it.
	// +optional
	InService bool `json:"inService,omitempty"`
}

// NodeDeviation is something that the user data of a machine should have done and did not.
// +kubebuilder:validation:Enum=NoUninitializedTaint;OtherVersion;OtherName
type NodeDeviation string

const (
	// NodeNoUninitializedTaint is a Node that registered without the taint machinist.dev/uninitialized although its
	// machine has taints, so that pods that do not tolerate these may run on it.
	NodeNoUninitializedTaint NodeDeviation = "NoUninitializedTaint"
	// NodeOtherVersion is a Node whose kubelet has another version than the machine asks for.
	NodeOtherVersion NodeDeviation = "OtherVersion"
	// NodeOtherName is a Node with another name than the provider expects of the instance.
	NodeOtherName NodeDeviation = "OtherName"
)

// FormerValue is the value of a label, an annotation or a taint of a Node before it was given another.
type FormerValue struct {
	// name is label/KEY, annotation/KEY or taint/KEY:EFFECT.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=384
	Name string `json:"name"`

	// value that it had.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// MachinePhase is where in its life a machine is.
// +kubebuilder:validation:Enum=Pending;Provisioning;Provisioned;Running;Available;Unhealthy;Updating;Failed;Deleting
type MachinePhase string

// Phases of a Machine.
const (
	// MachinePending has no instance, and none was asked for yet or its configuration is refused.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning asked for an instance and has none yet: Create failed in a way that is retried, or returned
	// no providerID so far.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineProvisioned has an instance that is not yet a usable Node.
	MachineProvisioned MachinePhase = "Provisioned"
	// MachineRunning has a Node that is Ready and free of startup taints.
	MachineRunning MachinePhase = "Running"
	// MachineAvailable stands for Running where there is no target cluster.
	MachineAvailable MachinePhase = "Available"
	// MachineUnhealthy was Running, and its Node no longer is Ready or is gone.
	MachineUnhealthy MachinePhase = "Unhealthy"
	// MachineUpdating is being changed in place or having its instance replaced.
	MachineUpdating MachinePhase = "Updating"
	// MachineFailed cannot become or stay a Node; failureReason says why.
	MachineFailed MachinePhase = "Failed"
	// MachineDeleting is being deleted.
	MachineDeleting MachinePhase = "Deleting"
)

// MachineFailureReason says in one word why a machine is Failed.
// +kubebuilder:validation:Enum=CreateError;InsufficientResources;JoinClusterTimeout;InstanceVanished
type MachineFailureReason string

// Reasons of status.failureReason of a Machine, while its phase is Failed, and during its deletion after that.
const (
	// FailureCreateError surfaces when there is no instance within timeouts.creation.
	FailureCreateError MachineFailureReason = "CreateError"
	// FailureInsufficientResources surfaces when the provider had no capacity or quota within timeouts.creation.
	FailureInsufficientResources MachineFailureReason = "InsufficientResources"
	// FailureJoinClusterTimeout surfaces when the instance did not become a usable Node within timeouts.creation.
	FailureJoinClusterTimeout MachineFailureReason = "JoinClusterTimeout"
	// FailureInstanceVanished surfaces when the provider reports that the instance of a machine is gone.
	FailureInstanceVanished MachineFailureReason = "InstanceVanished"
)

// NodeRef names one Node for as long as it lives.
type NodeRef struct {
	// name of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid of the Node.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
}

// InstanceState is the state of an instance at the provider. A provider may report others than those declared here.
type InstanceState string

const (
	// InstancePending is being made.
	InstancePending InstanceState = "Pending"
	// InstanceRunning runs.
	InstanceRunning InstanceState = "Running"
	// InstanceStopped exists and does not run.
	InstanceStopped InstanceState = "Stopped"
	// InstanceTerminating is being deleted.
	InstanceTerminating InstanceState = "Terminating"
)

// InstanceStatus is what the provider says of an instance.
type InstanceStatus struct {
	// state of the instance: Pending, Running, Stopped, Terminating, or what else the provider reports.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State InstanceState `json:"state,omitempty"`

	// type is the provider's name for the size of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Type string `json:"type,omitempty"`

	// region that the instance is in.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Region string `json:"region,omitempty"`

	// zone that the instance is in.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`

	// launchTime is when the provider began to make the instance.
	// +optional
	LaunchTime *metav1.Time `json:"launchTime,omitempty"`

	// nodeName is the name under which the instance will register as a Node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// nodeProviderID is the provider ID that the instance's Node has, as its class says; empty where it is
	// spec.providerID.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	NodeProviderID string `json:"nodeProviderID,omitempty"`

	// provider that made the instance and will delete it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// credentialsRef names the Secret with the credentials that can delete the instance.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// scope is the provider's own locator for the instance, such as a subscription and resource group. It is opaque and
	// holds no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Scope string `json:"scope,omitempty"`

	// account is the provider's name of the account in which the instance is, such as a subscription or a project, empty
	// where that is not known. It holds no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Account string `json:"account,omitempty"`

	// userDataHash is a short hash of the user data template that the instance was created from, empty where that is not
	// known. It is short so that nothing can be found out by it about secrets in user data.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	UserDataHash string `json:"userDataHash,omitempty"`
}

// LaunchStep is a step in the adoption, the replacement or the removal of a machine's instance.
// +kubebuilder:validation:Enum="";Adopting;Replacing;Retrying
type LaunchStep string

const (
	// LaunchStepNone: none of them is under way.
	LaunchStepNone LaunchStep = ""
	// LaunchStepAdopting: the provider may have been asked to tag the instance that the machine was created with.
	LaunchStepAdopting LaunchStep = "Adopting"
	// LaunchStepReplacing: the old instance is being removed, a new attempt follows.
	LaunchStepReplacing LaunchStep = "Replacing"
	// LaunchStepRetrying: the instance failed for lack of capacity before it ran. It is being removed, and the creation is
	// tried again.
	LaunchStepRetrying LaunchStep = "Retrying"
)

// LaunchStatus tells the attempts to make an instance apart.
type LaunchStatus struct {
	// attempt counts from 1 to 1000000, where it stays. Together with the UID of the Machine it is the token that makes
	// creation idempotent. Absent means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Attempt int32 `json:"attempt,omitempty"`

	// step is Adopting while an existing instance is being taken over, Replacing while the instance is being replaced
	// under the same Machine, and Retrying while an instance is being removed that the provider accepted and had no
	// capacity for.
	// +optional
	Step LaunchStep `json:"step,omitempty"`

	// oldProviderID is the instance that is being replaced, or was replaced last: the provider may show it for a while.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OldProviderID string `json:"oldProviderID,omitempty"`

	// noCapacitySince is when the provider was first asked for an instance that it accepted and had no capacity for. Set
	// until an instance runs.
	// +optional
	NoCapacitySince *metav1.Time `json:"noCapacitySince,omitempty"`

	// refused is true while the provider has refused every creation of an instance with an error that means that it took
	// no effect. There is no instance then, and a deletion neither looks for one nor needs credentials. It is taken back
	// before the next creation is asked for.
	// +optional
	Refused bool `json:"refused,omitempty"`
}

// AppliedStatus is what a running instance was made from.
type AppliedStatus struct {
	// className is the name of the MachineClass, empty for the inline form.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`

	// providerSpecHash is a hash of the providerSpec.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ProviderSpecHash string `json:"providerSpecHash,omitempty"`

	// version of the kubelet that was asked for.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// OperationType is a kind of operation on an instance.
// +kubebuilder:validation:Enum=Create;Update;HealthCheck;Drain;Delete
type OperationType string

const (
	// OperationCreate makes the instance and waits for its Node.
	OperationCreate OperationType = "Create"
	// OperationUpdate changes or replaces the instance.
	OperationUpdate OperationType = "Update"
	// OperationHealthCheck follows a Node in trouble.
	OperationHealthCheck OperationType = "HealthCheck"
	// OperationDrain evicts the pods of the Node.
	OperationDrain OperationType = "Drain"
	// OperationDelete deletes the instance.
	OperationDelete OperationType = "Delete"
)

// OperationState is how far an operation has come.
// +kubebuilder:validation:Enum=Processing;Succeeded;Failed
type OperationState string

const (
	// OperationProcessing is under way, or will be tried again.
	OperationProcessing OperationState = "Processing"
	// OperationSucceeded is done.
	OperationSucceeded OperationState = "Succeeded"
	// OperationFailed will not be tried again without a change.
	OperationFailed OperationState = "Failed"
)

// LastOperation is what was last done to an instance.
type LastOperation struct {
	// type of the operation.
	// +optional
	Type OperationType `json:"type,omitempty"`

	// state of the operation.
	// +optional
	State OperationState `json:"state,omitempty"`

	// description of the operation for people.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Description string `json:"description,omitempty"`

	// code that the provider returned, by its gRPC name such as ResourceExhausted. Empty if there was no error.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code,omitempty"`

	// lastUpdateTime is when type, state, code or description last changed.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// attempts counts the calls of this operation that failed in a row.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// nextTryTime is when a creation, an update or a deletion that failed is tried again. It is tried earlier when the
	// machine, its class or a Secret changes, when the cloud has answered for other machines, or when the provider's
	// process is restarted.
	// +optional
	NextTryTime *metav1.Time `json:"nextTryTime,omitempty"`
}
