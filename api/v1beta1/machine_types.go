package v1beta1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Default timeouts of a Machine, for timeouts that the spec does not set.
const (
	DefaultCreationTimeout     = 20 * time.Minute
	DefaultUpdateTimeout       = 20 * time.Minute
	DefaultDrainTimeout        = 2 * time.Hour
	DefaultVolumeDetachTimeout = 5 * time.Minute
)

// MachineSpec is the desired state of one machine. The templates of MachineSets and MachineDeployments contain a spec
// of the same type.
//
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || has(self.providerSpec)",message="providerSpec is required with provider",fieldPath=".providerSpec",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="!has(self.providerSpec) || !has(self.classRef)",message="providerSpec must not be set with classRef: the class has it",fieldPath=".providerSpec",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.credentialsRef) || !has(self.classRef)",message="credentialsRef must not be set with classRef: the class has it",fieldPath=".credentialsRef",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.userDataRef) || !has(self.classRef)",message="userDataRef must not be set with classRef: the class has it",fieldPath=".userDataRef",reason="FieldValueForbidden"
type MachineSpec struct {
	// classRef names the MachineClass from which the instance is created. A Machine has either classRef or the inline
	// form, which consists of provider, providerSpec, credentialsRef and userDataRef. The template of a deployment with
	// placement has neither, because the options of the placement name the classes.
	// +optional
	ClassRef *LocalRef `json:"classRef,omitempty"`

	// provider is the name of the provider process that serves this machine, a DNS label. Set provider only in the
	// inline form.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider,omitempty"`

	// providerSpec describes the instance in the format of the provider, with apiVersion and kind. Set providerSpec
	// only in the inline form.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	ProviderSpec *runtime.RawExtension `json:"providerSpec,omitempty"`

	// credentialsRef names the Secret with the cloud credentials. Set credentialsRef only in the inline form.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template. Set userDataRef only in the inline form.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// version is the desired version of the kubelet, a complete semantic version with a leading v, such as v1.36.3.
	// Machinist passes the version to the bootstrap template and to the provider. If empty, the template and the
	// provider choose the version.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$')`,message="must be a complete Kubernetes version with a leading v, such as v1.36.3"
	Version string `json:"version,omitempty"`

	// providerID is the provider's identifier of the instance. The provider process sets the providerID. The
	// providerID equals spec.providerID of the Node, unless the class sets nodeProviderID. If the class allows
	// adoption, a Machine that is created with a providerID adopts this instance instead of creating one. A template
	// must not contain providerID.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([a-z][a-z0-9+.-]*://[^\s]+)?$`
	// +kubebuilder:validation:XValidation:rule=`oldSelf == "" || self in ["", oldSelf]`,message="is immutable once set, except that it may be cleared while status.launch.step is Replacing or Retrying"
	ProviderID string `json:"providerID,omitempty"`

	// node contains the labels, annotations and taints of the Node.
	// +optional
	Node NodeTemplate `json:"node,omitzero"`

	// timeouts limit how long the phases of the machine may take.
	// +optional
	// +kubebuilder:default={}
	Timeouts MachineTimeouts `json:"timeouts,omitzero"`

	// drain defines how the pods of the Node are drained. A change of drain does not start a rollout.
	// +optional
	Drain MachineDrain `json:"drain,omitzero"`

	// expireAfter is the maximum age of the machine. The MachineSet replaces the machine when its age is between 90%
	// and 100% of expireAfter. The exact age differs from machine to machine, so that machines of the same age are not
	// replaced together.
	//
	// If maxSurge is above 0, or the MachineSet has no MachineDeployment, the new machine is created before the old
	// machine is deleted. The replacement is a disruption with the reason Expiry, and respects
	// MachineDisruptionBudgets. If expireAfter is not set, machines do not expire. A Machine without a MachineSet
	// never expires. A change of expireAfter does not start a rollout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ExpireAfter *metav1.Duration `json:"expireAfter,omitempty"`

	// lifecycleHooks delay the deletion of the machine until other clients remove the hooks.
	// +optional
	LifecycleHooks LifecycleHooks `json:"lifecycleHooks,omitzero"`

	// powerState is the state in which Machinist keeps the instance: Stopped or Running. With Stopped, Machinist drains
	// the Node and stops the instance. The instance with its disks and addresses, the Node and the Machine stay. With
	// Running, Machinist starts a stopped instance and uncordons the Node. If powerState is not set, Machinist neither
	// stops nor starts the instance. A template must not contain powerState.
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`
}

// PowerState is a state in which Machinist keeps an instance.
// +kubebuilder:validation:Enum=Running;Stopped
type PowerState string

const (
	// PowerRunning means that Machinist starts the instance whenever it is stopped.
	PowerRunning PowerState = "Running"
	// PowerStopped means that Machinist stops the instance whenever it runs.
	PowerStopped PowerState = "Stopped"
)

// ShutdownTimeout is how long the operating system of an instance may take to shut down. Machinist then stops the
// instance without waiting for its operating system.
const ShutdownTimeout = 5 * time.Minute

// NodeTemplate contains the labels, annotations and taints of a Node. Machinist applies changes of the template to
// existing Nodes, without replacing their machines. Labels, annotations and taints of other clients stay on the Node.
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

	// startupTaints are on the Node when it registers. Other components, such as a network plugin, remove the startup
	// taints. The machine becomes Running only after all startup taints are removed. A Node that may already run pods,
	// such as the Node of an adopted instance, does not get startup taints.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`

	// readinessGates are conditions of the Node that must be True, in addition to Ready, before the machine is Ready and
	// counts as available. Other components, such as a network plugin or the driver of a GPU, set these conditions. A new
	// machine becomes Running only after all these conditions are True. If one of them is not True later, the machine
	// is not available, but is not replaced for this reason.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MaxItems=16
	ReadinessGates []NodeReadinessGate `json:"readinessGates,omitempty"`
}

// NodeReadinessGate is a condition of the Node that must be True before the machine is Ready.
//
// +kubebuilder:validation:XValidation:rule="!(self.conditionType.lowerAscii() in ['ready', 'memorypressure', 'diskpressure', 'pidpressure', 'networkunavailable'])",message="is a condition that Kubernetes sets: Ready is always required, and the others are not True on a healthy Node",fieldPath=".conditionType"
type NodeReadinessGate struct {
	// conditionType is the type of the Node condition. The type is case-sensitive.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	ConditionType corev1.NodeConditionType `json:"conditionType"`
}

// MachineTimeouts limits how long the phases of a machine may take.
type MachineTimeouts struct {
	// creation is the time within which the machine must be Running. Otherwise the machine is Failed. The time begins
	// when the Machine and everything that it needs exist, such as its class and Secrets. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	Creation *metav1.Duration `json:"creation,omitempty"`

	// update is how long an update in place may take, not counting the drain. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	Update *metav1.Duration `json:"update,omitempty"`

	// drain is how long the eviction of pods may take. Shortly before the end, Machinist deletes the remaining pods
	// without regard to PodDisruptionBudgets. With 0s, all pods are deleted at once. Defaults to 2h.
	// +optional
	// +kubebuilder:default="2h"
	Drain *metav1.Duration `json:"drain,omitempty"`

	// volumeDetach is how long Machinist waits for volumes to be detached after the drain has removed the last pod.
	// Defaults to 5m.
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

// LifecycleHooks delay the deletion of a machine until other controllers remove the hooks.
type LifecycleHooks struct {
	// preDrain delays the deletion before the Node is cordoned and drained.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreDrain []LifecycleHook `json:"preDrain,omitempty"`

	// preTerminate delays the deletion after the drain, before the instance is deleted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PreTerminate []LifecycleHook `json:"preTerminate,omitempty"`
}

// LifecycleHook delays the deletion of a machine until the hook is removed.
type LifecycleHook struct {
	// name of the hook, qualified by a DNS domain of its owner, such as backup.example.com or example.com/backup.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Name string `json:"name"`

	// owner is the controller or team that removes the hook. When a deletion waits for the hook, administrators can ask
	// the owner for the cause.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Owner string `json:"owner"`
}

// Machine is one virtual machine in a cloud, and becomes one Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machines,scope=Namespaced,shortName=ma;mma,categories=machinist
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Up-to-date",type=string,JSONPath=`.status.conditions[?(@.type=="UpToDate")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=1,JSONPath=`.spec.providerID`
// +kubebuilder:printcolumn:name="Class",type=string,priority=1,JSONPath=`.spec.classRef.name`
// +kubebuilder:printcolumn:name="Zone",type=string,priority=1,JSONPath=`.status.instance.zone`
// +kubebuilder:printcolumn:name="Domain",type=string,priority=1,JSONPath=`.metadata.labels.machinist\.dev/placement-domain`
// +kubebuilder:printcolumn:name="Internal-IP",type=string,priority=1,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`
// +kubebuilder:printcolumn:name="Last-Operation",type=string,priority=1,JSONPath=`.status.lastOperation.type`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[^.]{1,63}$')",message="metadata.name must be a DNS label of at most 63 characters"
// +kubebuilder:validation:XValidation:rule=`self.spec.?providerID.orValue("") != "" || oldSelf.spec.?providerID.orValue("") == "" || oldSelf.?status.?launch.?step.orValue("") in ["Replacing", "Retrying"]`,message="spec.providerID is immutable once set, except that it may be cleared while status.launch.step is Replacing or Retrying"
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the machine.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.classRef) != has(self.provider)",message="exactly one of classRef and provider must be set"
	Spec MachineSpec `json:"spec"`

	// status is the observed state of the machine.
	// +optional
	Status MachineStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the machine.
func (m *Machine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the machine.
func (m *Machine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// maxLaunchAttempt is the highest number of a launch attempt. Machinist never writes a higher number to a status.
const maxLaunchAttempt = 1000000

// NodeProviderID returns the provider ID of the machine's Node. The result equals the provider ID of the instance,
// unless the class defines another provider ID for its Nodes.
func (m *Machine) NodeProviderID() string {
	if m.Status.Instance != nil && m.Status.Instance.NodeProviderID != "" {
		return m.Status.Instance.NodeProviderID
	}
	return m.Spec.ProviderID
}

// LaunchAttempt returns the number of the current attempt to create the instance, from 1 to 1000000.
func (m *Machine) LaunchAttempt() int32 {
	if m.Status.Launch == nil {
		return 1
	}
	return min(max(m.Status.Launch.Attempt, 1), maxLaunchAttempt)
}

// NextLaunchAttempt returns the number of the attempt after the current attempt. After attempt 1000000, the number
// stays the same.
func (m *Machine) NextLaunchAttempt() int32 { return min(m.LaunchAttempt()+1, maxLaunchAttempt) }

// CreateHandle returns the handle of the operation that creates the instance, or "" if no such operation is known.
func (m *Machine) CreateHandle() string {
	if m.Status.Launch == nil {
		return ""
	}
	return m.Status.Launch.CreateHandle
}

// IsReplacing reports whether the instance is being replaced under the same Machine.
func (m *Machine) IsReplacing() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepReplacing
}

// Retrying returns true while Machinist removes an instance that failed for lack of capacity. Machinist then creates
// the instance again.
func (m *Machine) Retrying() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepRetrying
}

// IsAwaitingCapacity reports whether the cloud has no capacity for the machine and no request for an instance is in
// progress. The provider requests no instance before it leaves this step.
func (m *Machine) IsAwaitingCapacity() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepAwaitingCapacity
}

// IsAdopting reports whether the machine is adopting an existing instance. The provider may already have received the
// request to tag this instance.
func (m *Machine) IsAdopting() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepAdopting
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
