package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AdoptionPolicy says whether a Machine may take over an instance that exists already.
// +kubebuilder:validation:Enum=Forbid;Allow
type AdoptionPolicy string

const (
	// AdoptionForbid refuses Machines that are created with a providerID.
	AdoptionForbid AdoptionPolicy = "Forbid"
	// AdoptionAllow lets a Machine be created with the providerID of an existing instance.
	AdoptionAllow AdoptionPolicy = "Allow"
)

// MachineClassSpec says how to make an instance.
//
// CEL's equality does not see a renamed top-level key of providerSpec; the admission policy for classes does.
//
// +kubebuilder:validation:XValidation:rule="self.provider == oldSelf.provider",message="provider is immutable: make a new class",fieldPath=".provider"
// +kubebuilder:validation:XValidation:rule="self.providerSpec == oldSelf.providerSpec",message="providerSpec is immutable: make a new class",fieldPath=".providerSpec"
// +kubebuilder:validation:XValidation:rule="has(self.userDataRef) == has(oldSelf.userDataRef) && (!has(self.userDataRef) || self.userDataRef == oldSelf.userDataRef)",message="userDataRef is immutable: make a new class, or change the Secret's content",fieldPath=".userDataRef"
// +kubebuilder:validation:XValidation:rule="has(self.values) == has(oldSelf.values) && (!has(self.values) || self.values == oldSelf.values)",message="values are immutable: make a new class, or change the content of their ConfigMaps and Secrets",fieldPath=".values"
type MachineClassSpec struct {
	// provider is the name of the provider process that serves this class, a DNS label such as azure. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider"`

	// providerSpec describes the instance in the provider's own terms, with apiVersion and kind. Machinist does not
	// read it, the provider validates it. Immutable: a change is a new class and a rollout, so that every revision can
	// be rolled back to.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	ProviderSpec *runtime.RawExtension `json:"providerSpec"`

	// credentialsRef names the Secret with the cloud credentials. It may be changed at any time, to rotate them.
	// Without it the provider uses the credentials of its own environment, if it has any.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template. The reference is immutable. A change of the Secret's
	// content serves instances that are made later.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// values are what <<VALUES.NAME>> in the user data stands for, by name. User data with such a placeholder that has no
	// value here is refused. The list is immutable; a change of the content of ConfigMaps and Secrets serves instances
	// that are made later.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Values []UserDataValue `json:"values,omitempty"`

	// adoption says whether a Machine of this class may be created with the providerID of an existing instance: Forbid
	// or Allow. Defaults to Forbid.
	// +optional
	// +kubebuilder:default=Forbid
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// nodeProviderID is the provider ID that the Nodes of this class have, where it is not the one of the provider: the
	// cloud controllers of some distributions set their own, such as k3s://<<NODE_NAME>>. <<NODE_NAME>> is replaced by the
	// name under which the instance registers, <<INSTANCE_ID>> by the last part of the provider's ID, and <<REGION>> by
	// the instance's region. A change serves instances that are made later.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z][a-z0-9+.-]*://([^<> ]|<<REGION>>)*<<(NODE_NAME|INSTANCE_ID)>>([^<> ]|<<(NODE_NAME|INSTANCE_ID|REGION)>>)*$')",message="must begin with a scheme such as k3s:// and contain <<NODE_NAME>> or <<INSTANCE_ID>>; <<REGION>> is replaced too"
	NodeProviderID string `json:"nodeProviderID,omitempty"`

	// capacity tells an autoscaler what a Node of this class offers while there is none. Every value that is set wins
	// over what the provider finds out.
	// +optional
	Capacity *ClassCapacity `json:"capacity,omitempty"`
}

// ClassCapacity describes the Node that an instance of a class becomes.
type ClassCapacity struct {
	// resources of the Node, such as cpu, memory, ephemeral-storage or nvidia.com/gpu.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// instanceType of the Node, for the label node.kubernetes.io/instance-type.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	InstanceType string `json:"instanceType,omitempty"`

	// region of the Node, for the label topology.kubernetes.io/region.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`

	// zone of the Node, for the label topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// architecture of the Node, for the label kubernetes.io/arch, such as amd64 or arm64.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Architecture string `json:"architecture,omitempty"`

	// draDriver is the driver through which pods claim the devices of the Node by dynamic resource allocation. An
	// autoscaler then expects devices of this driver and no extended resource.
	// +optional
	DRADriver *DRADriver `json:"draDriver,omitempty"`

	// csiDrivers are the volume drivers on the Node, so that an autoscaler counts the volumes that a pod needs.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	CSIDrivers []CSIDriver `json:"csiDrivers,omitempty"`
}

// DRADriver describes devices that pods claim by dynamic resource allocation.
type DRADriver struct {
	// name of the driver, such as gpu.nvidia.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// devices is how many devices a Node has. Defaults to the number of GPUs in the resources of the class.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Devices int32 `json:"devices,omitempty"`
}

// CSIDriver describes a volume driver on a Node.
type CSIDriver struct {
	// name of the driver, such as disk.csi.azure.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*$`
	Name string `json:"name"`

	// volumeLimit is how many volumes of the driver a Node can attach; 0, the default, is without a limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	VolumeLimit int32 `json:"volumeLimit,omitempty"`
}

// NodeInfo is what the provider knows about the Node that an instance of a class becomes.
type NodeInfo struct {
	// architecture of the Node, such as amd64 or arm64.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Architecture string `json:"architecture,omitempty"`

	// operatingSystem of the Node: linux or windows.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	OperatingSystem string `json:"operatingSystem,omitempty"`

	// instanceType is the provider's name for the size of the instance.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	InstanceType string `json:"instanceType,omitempty"`

	// region that the instance will be in.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Region string `json:"region,omitempty"`

	// zone that the instance will be in, empty if the provider chooses it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`
}

// MachineClassStatus is what the provider found out about a class.
type MachineClassStatus struct {
	// observedGeneration is the generation of the class that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// capacity is the resources that the provider resolved for providerSpec.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is what else the provider resolved for providerSpec.
	// +optional
	NodeInfo *NodeInfo `json:"nodeInfo,omitempty"`

	// account is the provider's name of the account that the credentials open now, empty where that is not known.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Account string `json:"account,omitempty"`

	// userDataHash is a short hash of the user data template as the Secret has it now.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	UserDataHash string `json:"userDataHash,omitempty"`

	// conditions of the class: Ready, and where they are True Deleting, OrphanRemovalBlocked, UserDataWarning,
	// UserDataChanged, AccountChanged and JoinBlocked.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineClass says how to make an instance. Many machines share one class. Its provider, providerSpec and userDataRef
// never change: another instance is another class. A class stays until no Machine uses it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machineclasses,scope=Namespaced,shortName=mclass,categories=machinist
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Instance-Type",type=string,priority=1,JSONPath=`.status.nodeInfo.instanceType`
// +kubebuilder:printcolumn:name="Credentials",type=string,priority=1,JSONPath=`.spec.credentialsRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how to make an instance.
	// +required
	Spec MachineClassSpec `json:"spec"`

	// status is what the provider found out.
	// +optional
	Status MachineClassStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the class.
func (c *MachineClass) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the class.
func (c *MachineClass) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// MachineClassList is a list of MachineClasses.
//
// +kubebuilder:object:root=true
type MachineClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineClass `json:"items"`
}
