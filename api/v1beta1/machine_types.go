package v1beta1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Timeouts of a Machine where its spec sets none.
const (
	DefaultCreationTimeout     = 20 * time.Minute
	DefaultUpdateTimeout       = 20 * time.Minute
	DefaultDrainTimeout        = 2 * time.Hour
	DefaultVolumeDetachTimeout = 5 * time.Minute
)

// MachineSpec says what one machine shall be. It is also the spec in the template of MachineSets and
// MachineDeployments.
//
// +kubebuilder:validation:XValidation:rule="has(self.classRef) != has(self.provider)",message="exactly one of classRef and provider must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || has(self.providerSpec)",message="providerSpec is required with provider",fieldPath=".providerSpec",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="!has(self.classRef) || !has(self.providerSpec)",message="providerSpec must not be set with classRef: the class has it",fieldPath=".providerSpec",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.classRef) || !has(self.credentialsRef)",message="credentialsRef must not be set with classRef: the class has it",fieldPath=".credentialsRef",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.classRef) || !has(self.userDataRef)",message="userDataRef must not be set with classRef: the class has it",fieldPath=".userDataRef",reason="FieldValueForbidden"
type MachineSpec struct {
	// classRef names the MachineClass to make the instance from. Exactly one of classRef and the inline form (provider
	// and providerSpec) is set.
	// +optional
	ClassRef *LocalRef `json:"classRef,omitempty"`

	// provider is the name of the provider process that serves this machine, a DNS label. Inline form only.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider,omitempty"`

	// providerSpec describes the instance in the provider's own terms, with apiVersion and kind. Inline form only.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	ProviderSpec *runtime.RawExtension `json:"providerSpec,omitempty"`

	// credentialsRef names the Secret with the cloud credentials. Inline form only.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template. Inline form only.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// version of the kubelet that is wanted, a semantic version with a leading v, such as v1.36.3. It is handed to the
	// bootstrap template and to the provider. Empty leaves it to them.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`
	Version string `json:"version,omitempty"`

	// providerID is the provider's name for the instance, equal to spec.providerID of its Node. The provider process
	// sets it. A Machine that is created with one adopts that instance instead of making one, if its class allows it.
	// Not allowed in a template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([a-z][a-z0-9+.-]*://[^\s]+)?$`
	ProviderID string `json:"providerID,omitempty"`

	// node is what the Node shall carry.
	// +optional
	Node NodeTemplate `json:"node,omitzero"`

	// timeouts of the phases of the machine's life.
	// +optional
	// +kubebuilder:default={}
	Timeouts MachineTimeouts `json:"timeouts,omitzero"`

	// lifecycleHooks hold up the deletion of the machine until their owners remove them.
	// +optional
	LifecycleHooks LifecycleHooks `json:"lifecycleHooks,omitzero"`
}

// NodeTemplate is what a Node shall carry. It is kept in sync on the Node in place and never a reason to replace a
// machine. What others put on the Node is left alone.
//
// +kubebuilder:validation:XValidation:rule="!has(self.taints) || !has(self.startupTaints) || !self.startupTaints.exists(s, self.taints.exists(t, t.key == s.key && t.effect == s.effect))",message="a taint must not be in both taints and startupTaints",fieldPath=".startupTaints"
type NodeTemplate struct {
	// labels of the Node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the Node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// taints of the Node.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []corev1.Taint `json:"taints,omitempty"`

	// startupTaints are present on the Node when it registers and are removed by others, such as a network plugin. The
	// machine is not Running until they are gone.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
}

// MachineTimeouts bounds the phases of a machine's life.
//
// +kubebuilder:validation:XValidation:rule="!has(self.creation) || duration(self.creation) > duration('0s')",message="creation must be longer than 0s",fieldPath=".creation"
// +kubebuilder:validation:XValidation:rule="!has(self.update) || duration(self.update) > duration('0s')",message="update must be longer than 0s",fieldPath=".update"
type MachineTimeouts struct {
	// creation is the time from the Machine's creation until it must be Running. Then it is Failed. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	Creation *metav1.Duration `json:"creation,omitempty"`

	// update is the time that a change in place may take, drain not counted. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	Update *metav1.Duration `json:"update,omitempty"`

	// drain is the time that eviction of the pods may take before they are deleted. 0s does not wait. Defaults to 2h.
	// +optional
	// +kubebuilder:default="2h"
	Drain *metav1.Duration `json:"drain,omitempty"`

	// volumeDetach is the time to wait for volumes to be detached after the last pod was drained. Defaults to 5m.
	// +optional
	// +kubebuilder:default="5m"
	VolumeDetach *metav1.Duration `json:"volumeDetach,omitempty"`
}

// CreationOrDefault returns the creation timeout, 20 minutes if unset.
func (t MachineTimeouts) CreationOrDefault() time.Duration {
	return durationOr(t.Creation, DefaultCreationTimeout)
}

// UpdateOrDefault returns the update timeout, 20 minutes if unset.
func (t MachineTimeouts) UpdateOrDefault() time.Duration {
	return durationOr(t.Update, DefaultUpdateTimeout)
}

// DrainOrDefault returns the drain timeout, 2 hours if unset.
func (t MachineTimeouts) DrainOrDefault() time.Duration {
	return durationOr(t.Drain, DefaultDrainTimeout)
}

// VolumeDetachOrDefault returns the volume detach timeout, 5 minutes if unset.
func (t MachineTimeouts) VolumeDetachOrDefault() time.Duration {
	return durationOr(t.VolumeDetach, DefaultVolumeDetachTimeout)
}

func durationOr(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	return d.Duration
}

// LifecycleHooks are points at which the deletion of a machine waits.
type LifecycleHooks struct {
	// preDrain holds the deletion before the node is cordoned and drained.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreDrain []LifecycleHook `json:"preDrain,omitempty"`

	// preTerminate holds the deletion after the drain, before the instance is deleted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreTerminate []LifecycleHook `json:"preTerminate,omitempty"`
}

// LifecycleHook holds up the deletion of a machine while it is present.
type LifecycleHook struct {
	// name of the hook, qualified by a DNS domain of its owner, such as backup.example.com or example.com/backup.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Name string `json:"name"`

	// owner of the hook: who will remove it, for people who find it in the way.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Owner string `json:"owner"`
}

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

	// addresses of the instance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
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

	// applied is what the running instance was made from.
	// +optional
	Applied *AppliedStatus `json:"applied,omitempty"`

	// lastOperation is what was last done to the instance.
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`

	// failureReason says in one word why the machine is Failed. Set if and only if the phase is Failed.
	// +optional
	FailureReason MachineFailureReason `json:"failureReason,omitempty"`

	// failureMessage says in a sentence why the machine is Failed. Set if and only if the phase is Failed.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	FailureMessage string `json:"failureMessage,omitempty"`

	// conditions of the machine: Launched, Registered, NodeHealthy, UpToDate, Drained, VolumesDetached, Ready, Deleting,
	// Paused, RemediationRequested.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachinePhase is where in its life a machine is.
// +kubebuilder:validation:Enum=Pending;Provisioning;Provisioned;Running;Available;Unhealthy;Updating;Failed;Deleting
type MachinePhase string

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
}

// LaunchStep is a step in the replacement of a machine's instance.
// +kubebuilder:validation:Enum="";Replacing
type LaunchStep string

const (
	// LaunchStepNone: no replacement is under way.
	LaunchStepNone LaunchStep = ""
	// LaunchStepReplacing: the old instance is being removed, a new attempt follows.
	LaunchStepReplacing LaunchStep = "Replacing"
)

// LaunchStatus tells the attempts to make an instance apart.
type LaunchStatus struct {
	// attempt counts from 1. Together with the UID of the Machine it is the token that makes creation idempotent.
	// Absent means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt,omitempty"`

	// step is Replacing while the instance is being replaced under the same Machine.
	// +optional
	Step LaunchStep `json:"step,omitempty"`

	// oldProviderID is the instance that is being replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OldProviderID string `json:"oldProviderID,omitempty"`
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
}

// Machine is one virtual machine at a provider that becomes one Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machines,scope=Namespaced,shortName=ma,categories=machinist
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Up-to-date",type=string,JSONPath=`.status.conditions[?(@.type=="UpToDate")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=1,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Class",type=string,priority=1,JSONPath=`.spec.classRef.name`
// +kubebuilder:printcolumn:name="Zone",type=string,priority=1,JSONPath=`.status.instance.zone`
// +kubebuilder:printcolumn:name="Internal-IP",type=string,priority=1,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`
// +kubebuilder:printcolumn:name="Last-Operation",type=string,priority=1,JSONPath=`.status.lastOperation.type`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 63 characters"
// +kubebuilder:validation:XValidation:rule=`oldSelf.spec.?providerID.orValue("") in ["", self.spec.?providerID.orValue("")] || (self.spec.?providerID.orValue("") == "" && oldSelf.?status.?launch.?step.orValue("") == 'Replacing')`,message="spec.providerID must not change once it is set, except to empty while status.launch.step is Replacing"
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the machine shall be.
	// +required
	Spec MachineSpec `json:"spec"`

	// status is what was observed of the machine.
	// +optional
	Status MachineStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the machine.
func (m *Machine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the machine.
func (m *Machine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// LaunchAttempt returns the current attempt to make the instance, counted from 1.
func (m *Machine) LaunchAttempt() int32 {
	if m.Status.Launch == nil || m.Status.Launch.Attempt < 1 {
		return 1
	}
	return m.Status.Launch.Attempt
}

// Replacing says whether the instance is being replaced under the same Machine.
func (m *Machine) Replacing() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepReplacing
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
