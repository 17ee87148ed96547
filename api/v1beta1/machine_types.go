package v1beta1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Timeouts of a Machine where its spec sets none.
const (
	DefaultCreationTimeout     = 20 * time.Minute
	DefaultUpdateTimeout       = 20 * time.Minute
	DefaultDrainTimeout        = 2 * time.Hour
	DefaultVolumeDetachTimeout = 5 * time.Minute
)

// MachineSpec says the desired state of one machine. It is also the spec in the template of MachineSets and
// MachineDeployments.
//
// +kubebuilder:validation:XValidation:rule="has(self.classRef) != has(self.provider)",message="exactly one of classRef and provider must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || has(self.providerSpec)",message="providerSpec is required with provider",fieldPath=".providerSpec",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="!has(self.providerSpec) || !has(self.classRef)",message="providerSpec must not be set with classRef: the class has it",fieldPath=".providerSpec",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.credentialsRef) || !has(self.classRef)",message="credentialsRef must not be set with classRef: the class has it",fieldPath=".credentialsRef",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.userDataRef) || !has(self.classRef)",message="userDataRef must not be set with classRef: the class has it",fieldPath=".userDataRef",reason="FieldValueForbidden"
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
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$')`,message="must be a whole version of Kubernetes with a leading v, such as v1.36.3"
	Version string `json:"version,omitempty"`

	// providerID is the provider's name for the instance, equal to spec.providerID of its Node. The provider process
	// sets it. A Machine that is created with one adopts that instance instead of making one, if its class allows it.
	// Not allowed in a template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([a-z][a-z0-9+.-]*://[^\s]+)?$`
	// +kubebuilder:validation:XValidation:rule=`oldSelf == "" || self in ["", oldSelf]`,message="must not change once it is set, except to empty while status.launch.step is Replacing or Retrying"
	ProviderID string `json:"providerID,omitempty"`

	// node is what the Node carries.
	// +optional
	Node NodeTemplate `json:"node,omitzero"`

	// timeouts of the phases of the machine's life.
	// +optional
	// +kubebuilder:default={}
	Timeouts MachineTimeouts `json:"timeouts,omitzero"`

	// expireAfter is how old a machine may become: its MachineSet replaces it when it is between nine and ten tenths as
	// old, another share for each machine, so that machines that were made together do not go together. The other one is
	// made first where there may be more machines. MachineDisruptionBudgets are asked with the reason Expiry. A Machine
	// without a set never expires. Unset, no machine does. A change is no reason for a rollout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	ExpireAfter *metav1.Duration `json:"expireAfter,omitempty"`

	// lifecycleHooks hold up the deletion of the machine until their owners remove them.
	// +optional
	LifecycleHooks LifecycleHooks `json:"lifecycleHooks,omitzero"`
}

// NodeTemplate is what a Node carries. It is kept in sync on the Node in place and never a reason to replace a
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
	// machine is not Running until they are gone. A Node that may run pods already, such as that of an adopted instance,
	// does not get them.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
}

// MachineTimeouts bounds the phases of a machine's life.
type MachineTimeouts struct {
	// creation is the time until the machine must be Running, from its creation or, if something it needs was missing,
	// from when that came. Then it is Failed. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	Creation *metav1.Duration `json:"creation,omitempty"`

	// update is the time that a change in place may take, drain not counted. Defaults to 20m.
	// +optional
	// +kubebuilder:default="20m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
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

// Machine is one virtual machine at a provider that becomes one Node.
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
// +kubebuilder:printcolumn:name="Internal-IP",type=string,priority=1,JSONPath=`.status.addresses[?(@.type=="InternalIP")].address`
// +kubebuilder:printcolumn:name="Last-Operation",type=string,priority=1,JSONPath=`.status.lastOperation.type`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[^.]{1,63}$')",message="metadata.name must be a DNS label of at most 63 characters"
// +kubebuilder:validation:XValidation:rule=`self.spec.?providerID.orValue("") != "" || oldSelf.spec.?providerID.orValue("") == "" || oldSelf.?status.?launch.?step.orValue("") in ["Replacing", "Retrying"]`,message="spec.providerID must not change once it is set, except to empty while status.launch.step is Replacing or Retrying"
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says the desired state of the machine.
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

// maxLaunchAttempt is far beyond what machines need. A number above it was not counted by anybody.
const maxLaunchAttempt = 1000000

// NodeProviderID returns the provider ID that the machine's Node has: that of its instance, unless its class says that
// Nodes have another one.
func (m *Machine) NodeProviderID() string {
	if m.Status.Instance != nil && m.Status.Instance.NodeProviderID != "" {
		return m.Status.Instance.NodeProviderID
	}
	return m.Spec.ProviderID
}

// LaunchAttempt returns the current attempt to make the instance, from 1 to 1000000.
func (m *Machine) LaunchAttempt() int32 {
	if m.Status.Launch == nil {
		return 1
	}
	return min(max(m.Status.Launch.Attempt, 1), maxLaunchAttempt)
}

// NextLaunchAttempt returns the number of the attempt after the current one. The last one has none after it.
func (m *Machine) NextLaunchAttempt() int32 { return min(m.LaunchAttempt()+1, maxLaunchAttempt) }

// Replacing says whether the instance is being replaced under the same Machine.
func (m *Machine) Replacing() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepReplacing
}

// Retrying says whether an instance that failed for lack of capacity is being removed, to try its creation again.
func (m *Machine) Retrying() bool {
	return m.Status.Launch != nil && m.Status.Launch.Step == LaunchStepRetrying
}

// Adopting says whether the provider may have been asked to tag the instance that the machine was created with.
func (m *Machine) Adopting() bool {
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
