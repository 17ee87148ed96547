package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineStatus is the observed state of a machine. Only the provider process of the machine writes the status, except
// for the condition RemediationRequested.
type MachineStatus struct {
	// observedGeneration is the most recent generation of the Machine that was processed. Either the changes of this
	// generation were carried out, or the condition Ready explains why not.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes where the machine is in its lifecycle: Pending, Provisioning, Provisioned, Running, Available,
	// Unhealthy, Updating, Stopped, Failed or Deleting.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`

	// nodeRef is the Node of the machine.
	// +optional
	NodeRef *NodeRef `json:"nodeRef,omitempty"`

	// nodeTemplate records the labels, annotations and taints of spec.node that Machinist applied to the Node. When a
	// label, an annotation or a taint is removed from spec.node, Machinist also removes it from the Node. Other labels,
	// annotations and taints of the Node stay as they are. The record is not stored on the Node, because the kubelet
	// can change its own Node.
	// +optional
	NodeTemplate *AppliedNodeTemplate `json:"nodeTemplate,omitempty"`

	// addresses of the instance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`

	// instance is what the provider reports about the instance. With this information, Machinist can delete the
	// instance even after the class was deleted.
	// +optional
	Instance *InstanceStatus `json:"instance,omitempty"`

	// launch records the current attempt to create the instance.
	// +optional
	Launch *LaunchStatus `json:"launch,omitempty"`

	// power is the progress of a stop or a start of the instance. The field is missing if Machinist has not stopped the
	// instance, and after the Node is Ready again.
	// +optional
	Power *PowerStatus `json:"power,omitempty"`

	// reboot is the last reboot that was requested with the annotation machinist.dev/reboot.
	// +optional
	Reboot *RebootStatus `json:"reboot,omitempty"`

	// version is the observed version of the kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// applied is the configuration from which the running instance was created. If the spec changed during the
	// creation, the configuration is unknown, and applied is {}.
	// +optional
	Applied *AppliedStatus `json:"applied,omitempty"`

	// lastOperation is the last operation on the instance.
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`

	// failureReason is the reason why the machine is Failed, in one word. The field is set while the phase is Failed.
	// A failed machine keeps the reason while it is being deleted.
	// +optional
	FailureReason MachineFailureReason `json:"failureReason,omitempty"`

	// failureMessage explains why the machine is Failed. The field is set together with failureReason.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	FailureMessage string `json:"failureMessage,omitempty"`

	// interruptionTime is the time at which the cloud reclaims the instance. If the announcement contains no time,
	// interruptionTime is an estimate from the usual notice period. The field is set while the condition
	// InterruptionNotice is True.
	// +optional
	InterruptionTime *metav1.Time `json:"interruptionTime,omitempty"`

	// conditions of the machine: Launched, Registered, NodeHealthy, UpToDate, Drained, DrainExtended, VolumesDetached,
	// Ready, Deleting, Paused, Preserved, InterruptionNotice, RemediationRequested, CertificateApproved,
	// Owned, PowerStateReached, Rebooted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AppliedNodeTemplate records the parts of spec.node that Machinist applied to a Node.
type AppliedNodeTemplate struct {
	// nodeUID is the UID of the Node.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	NodeUID types.UID `json:"nodeUID"`

	// labels contains the key of each label that Machinist put on the Node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	Labels []string `json:"labels,omitempty"`

	// annotations contains the key of each annotation that Machinist put on the Node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`

	// taints are the taints that were put on the Node, without their values, such as "dedicated:NoSchedule". The list
	// does not include startup taints.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=334
	Taints []string `json:"taints,omitempty"`

	// former contains the previous values of the labels, annotations and taints that were changed. When a label,
	// annotation or taint is removed from spec.node, Machinist restores its former value.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=192
	Former []FormerValue `json:"former,omitempty"`

	// deviations are the differences between the Node at its registration and what the user data should have
	// configured.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Deviations []NodeDeviation `json:"deviations,omitempty"`

	// inService is true if the Node may already have run pods. Machinist sets no startup taints on such a Node.
	// +optional
	InService bool `json:"inService,omitempty"`
}

// NodeDeviation is a difference between a Node and what the user data of its machine should have configured.
// +kubebuilder:validation:Enum=NoUninitializedTaint;OtherVersion;OtherName
type NodeDeviation string

const (
	// NodeNoUninitializedTaint means that the machine has taints, but its Node registered without the taint
	// machinist.dev/uninitialized. Pods that do not tolerate the machine's taints may run on the Node.
	NodeNoUninitializedTaint NodeDeviation = "NoUninitializedTaint"
	// NodeOtherVersion means that the Node has a kubelet version that its machine did not request.
	NodeOtherVersion NodeDeviation = "OtherVersion"
	// NodeOtherName means that the Node has a different name than the provider expects for the instance.
	NodeOtherName NodeDeviation = "OtherName"
)

// FormerValue is the value that a label, an annotation or a taint of a Node had before Machinist changed it.
type FormerValue struct {
	// name is label/KEY, annotation/KEY or taint/KEY:EFFECT.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=384
	Name string `json:"name"`

	// value before the change.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// MachinePhase summarizes where a machine is in its lifecycle.
// +kubebuilder:validation:Enum=Pending;Provisioning;Provisioned;Running;Available;Unhealthy;Updating;Stopped;Failed;Deleting
type MachinePhase string

// Phases of a Machine.
const (
	// MachinePending is the phase of a machine without an instance, because none was requested yet or the configuration
	// was refused.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning is the phase of a machine whose instance was requested but is not known yet. The creation
	// failed with an error that is retried, or the cloud has not returned the instance yet.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineProvisioned is the phase of a machine with an instance that is not a usable Node yet.
	MachineProvisioned MachinePhase = "Provisioned"
	// MachineRunning is the phase of a machine whose Node is Ready and has no startup taints.
	MachineRunning MachinePhase = "Running"
	// MachineAvailable is the phase of a working machine if there is no target cluster. With a target cluster, such a
	// machine has the phase Running.
	MachineAvailable MachinePhase = "Available"
	// MachineUnhealthy is the phase of a machine that was Running and whose Node is now gone or not Ready. Without a
	// target cluster, it is the phase of a machine that was Available and whose instance is now stopped.
	MachineUnhealthy MachinePhase = "Unhealthy"
	// MachineUpdating is the phase of a machine that is being changed in place, or whose instance is being replaced.
	MachineUpdating MachinePhase = "Updating"
	// MachineStopped is the phase of a machine that Machinist stops, has stopped, or starts again. The phase ends when
	// the Node is Ready again. The progress is in the condition PowerStateReached.
	MachineStopped MachinePhase = "Stopped"
	// MachineFailed is the phase of a machine that cannot become or remain a Node. The reason is in failureReason.
	MachineFailed MachinePhase = "Failed"
	// MachineDeleting is the phase of a machine that is being deleted.
	MachineDeleting MachinePhase = "Deleting"
)

// MachineFailureReason is the reason why a machine is Failed, in one word.
// +kubebuilder:validation:Enum=CreateError;InsufficientResources;JoinClusterTimeout;InstanceVanished
type MachineFailureReason string

// Reasons of status.failureReason of a Machine. The field is set while the phase is Failed, and while a failed machine
// is being deleted.
const (
	// FailureCreateError surfaces when there is no instance within timeouts.creation, or when the cloud reports that
	// the instance failed.
	FailureCreateError MachineFailureReason = "CreateError"
	// FailureInsufficientResources surfaces when the cloud had no capacity or quota within timeouts.creation.
	FailureInsufficientResources MachineFailureReason = "InsufficientResources"
	// FailureJoinClusterTimeout surfaces when the instance did not become a usable Node within timeouts.creation.
	FailureJoinClusterTimeout MachineFailureReason = "JoinClusterTimeout"
	// FailureInstanceVanished surfaces when the provider reports that the instance of a machine is gone.
	FailureInstanceVanished MachineFailureReason = "InstanceVanished"
)

// NodeRef identifies one Node by its name and UID. Another Node of the same name has another UID.
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

// InstanceState is the state of an instance in the cloud. A provider may report other states than the ones below.
type InstanceState string

const (
	// InstancePending means that the instance is being created.
	InstancePending InstanceState = "Pending"
	// InstanceRunning means that the instance runs.
	InstanceRunning InstanceState = "Running"
	// InstanceStopped means that the instance exists but does not run.
	InstanceStopped InstanceState = "Stopped"
	// InstanceTerminating means that the instance is being deleted.
	InstanceTerminating InstanceState = "Terminating"
)

// InstanceStatus is what the provider reports about an instance.
type InstanceStatus struct {
	// state of the instance: Pending, Running, Stopped, Terminating, or another state that the provider reports.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State InstanceState `json:"state,omitempty"`

	// type is the provider's name for the size of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Type string `json:"type,omitempty"`

	// region of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Region string `json:"region,omitempty"`

	// zone of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`

	// launchTime is the time at which the cloud began to create the instance.
	// +optional
	LaunchTime *metav1.Time `json:"launchTime,omitempty"`

	// nodeName is the name under which the instance registers as a Node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// nodeProviderID is the provider ID that the class defines for the Node of the instance. It is empty if the Node
	// has the provider ID in spec.providerID.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	NodeProviderID string `json:"nodeProviderID,omitempty"`

	// provider is the name of the provider that created the instance and will delete it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// credentialsRef names the Secret with the credentials that can delete the instance.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// scope is the provider's own locator of the instance, such as a subscription and resource group. The locator is
	// opaque and contains no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Scope string `json:"scope,omitempty"`

	// account is the provider's name for the account that contains the instance, such as a subscription or a project.
	// The field is empty if the account is unknown. The name contains no secrets.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Account string `json:"account,omitempty"`

	// userDataHash is a short hash of the user data template from which the instance was created. It is empty if the
	// template is unknown. The hash is too short to test guesses of a secret in the template.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	UserDataHash string `json:"userDataHash,omitempty"`

	// bootDataRemoved is true after the provider has removed the data that only the first boot of the instance needs,
	// such as user data with a bootstrap token. It stays false if the provider keeps no such data. Default: false.
	// +optional
	BootDataRemoved bool `json:"bootDataRemoved,omitempty"`
}

// LaunchStep is a step in the adoption, the replacement or the removal of a machine's instance.
// +kubebuilder:validation:Enum="";Adopting;Replacing;Retrying;AwaitingCapacity
type LaunchStep string

const (
	// LaunchStepNone means that no such step is in progress.
	LaunchStepNone LaunchStep = ""
	// LaunchStepAdopting means that the machine adopts an existing instance, and the provider may already have been
	// asked to tag it.
	LaunchStepAdopting LaunchStep = "Adopting"
	// LaunchStepReplacing means that the old instance is being removed. Afterwards Machinist creates a new instance.
	LaunchStepReplacing LaunchStep = "Replacing"
	// LaunchStepRetrying means that the cloud had no capacity for an instance that it had accepted. The instance is
	// being removed, and then Machinist tries again.
	LaunchStepRetrying LaunchStep = "Retrying"
	// LaunchStepAwaitingCapacity means that the cloud has no capacity for the machine's class and that no request for an
	// instance is in progress. Only machines of a placement have this step. The MachineSet may change the class of such a
	// machine, and the provider tries again when the class has capacity or its capacityRetryTime is over.
	LaunchStepAwaitingCapacity LaunchStep = "AwaitingCapacity"
)

// LaunchStatus records the current attempt to create an instance.
type LaunchStatus struct {
	// attempt is the number of the attempt, from 1 to 1000000. Attempts after the first 1000000 also have the number
	// 1000000. The number and the UID of the Machine form the token that makes the creation idempotent. A missing
	// number means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Attempt int32 `json:"attempt,omitempty"`

	// step is the current step of the attempt. The step is Adopting while an existing instance is being adopted, and
	// Replacing while the instance is being replaced under the same Machine. The step is Retrying while Machinist
	// removes an instance that the cloud could not start for lack of capacity, and AwaitingCapacity while a machine of a
	// placement waits for capacity. The step of every other attempt is empty.
	// +optional
	Step LaunchStep `json:"step,omitempty"`

	// oldProviderID identifies the instance that is being replaced or was replaced last. The cloud may still list this
	// instance for a while.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OldProviderID string `json:"oldProviderID,omitempty"`

	// createHandle identifies the operation of the cloud that creates the instance. The provider process sets the handle
	// if the cloud needs minutes to create an instance, and clears it when the instance has been created.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	CreateHandle string `json:"createHandle,omitempty"`

	// noCapacitySince is the time of the first request for an instance that the cloud accepted but could not start
	// for lack of capacity. In a machine of a placement, noCapacitySince is the time since which the machine has waited
	// for capacity in any of its classes. The field is cleared when an instance runs.
	// +optional
	NoCapacitySince *metav1.Time `json:"noCapacitySince,omitempty"`

	// refused is true if every attempt to create an instance failed with an error that guarantees that nothing was
	// created, or if the instance of an earlier attempt is gone. The Machine can then be deleted without credentials and
	// without a search for an instance. The field is cleared before the next creation is requested.
	// +optional
	Refused bool `json:"refused,omitempty"`
}

// PowerStep is a step of a stop or a start of an instance.
// +kubebuilder:validation:Enum=ShuttingDown;Stopped;Starting;Booting
type PowerStep string

const (
	// PowerStepShuttingDown means that the Node is drained, and the cloud may have been asked to stop the instance.
	PowerStepShuttingDown PowerStep = "ShuttingDown"
	// PowerStepStopped means that the cloud has confirmed that the instance is stopped.
	PowerStepStopped PowerStep = "Stopped"
	// PowerStepStarting means that the cloud may have been asked to start the instance.
	PowerStepStarting PowerStep = "Starting"
	// PowerStepBooting means that the instance runs, and its Node is not Ready again yet.
	PowerStepBooting PowerStep = "Booting"
)

// PowerStatus is the progress of a stop or a start of an instance.
type PowerStatus struct {
	// step is the current step: ShuttingDown, Stopped, Starting or Booting.
	// +required
	Step PowerStep `json:"step"`

	// since is the time at which the step began.
	// +required
	Since metav1.Time `json:"since"`

	// bootID is the boot ID that the Node reported before the instance was stopped. After a start, the Node counts as
	// Ready only when it reports another boot ID.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	BootID string `json:"bootID,omitempty"`
}

// AppliedStatus is the configuration from which a running instance was created.
type AppliedStatus struct {
	// className is the name of the MachineClass. It is empty if the Machine uses the inline form.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`

	// providerSpecHash is a hash of the providerSpec.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ProviderSpecHash string `json:"providerSpecHash,omitempty"`

	// version is the requested version of the kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
}

// OperationType is a kind of operation on an instance.
// +kubebuilder:validation:Enum=Create;Update;HealthCheck;Drain;Delete
type OperationType string

const (
	// OperationCreate creates the instance and waits for its Node.
	OperationCreate OperationType = "Create"
	// OperationUpdate changes or replaces the instance.
	OperationUpdate OperationType = "Update"
	// OperationHealthCheck observes a Node that is not healthy.
	OperationHealthCheck OperationType = "HealthCheck"
	// OperationDrain evicts the pods of the Node.
	OperationDrain OperationType = "Drain"
	// OperationDelete deletes the instance.
	OperationDelete OperationType = "Delete"
)

// OperationState is the progress of an operation.
// +kubebuilder:validation:Enum=Processing;Succeeded;Failed
type OperationState string

const (
	// OperationProcessing means that the operation is in progress or will be tried again.
	OperationProcessing OperationState = "Processing"
	// OperationSucceeded means that the operation is complete.
	OperationSucceeded OperationState = "Succeeded"
	// OperationFailed means that the operation will not be tried again until something changes.
	OperationFailed OperationState = "Failed"
)

// LastOperation is the last operation on an instance.
type LastOperation struct {
	// type of the operation.
	// +optional
	Type OperationType `json:"type,omitempty"`

	// state of the operation.
	// +optional
	State OperationState `json:"state,omitempty"`

	// description of the operation for users.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Description string `json:"description,omitempty"`

	// code is the gRPC name of the error that the provider returned, such as ResourceExhausted. It is empty if there
	// was no error.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code,omitempty"`

	// lastUpdateTime is the time of the last change of type, state, code or description.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// attempts is the number of consecutive failed calls of this operation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// nextTryTime is the time of the next attempt after a failed creation, update or deletion. The next attempt begins
	// earlier if the machine, its class or a Secret changes, if the cloud answers calls for other machines again, or if
	// the provider process restarts.
	// +optional
	NextTryTime *metav1.Time `json:"nextTryTime,omitempty"`
}
