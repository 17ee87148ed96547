package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AdoptionPolicy controls whether a Machine may adopt an existing instance.
// +kubebuilder:validation:Enum=Forbid;Allow
type AdoptionPolicy string

const (
	// AdoptionForbid refuses Machines that are created with a providerID.
	AdoptionForbid AdoptionPolicy = "Forbid"
	// AdoptionAllow permits Machines that are created with the providerID of an existing instance.
	AdoptionAllow AdoptionPolicy = "Allow"
)

// MachineClassSpec describes how to create an instance.
//
// The immutability rule of providerSpec does not detect a renamed top-level key, because of the way CEL compares such
// objects. The admission policy for classes detects a renamed key.
//
// +kubebuilder:validation:XValidation:rule="self.provider == oldSelf.provider",message="provider is immutable: create another class",fieldPath=".provider"
// +kubebuilder:validation:XValidation:rule="self.providerSpec == oldSelf.providerSpec",message="providerSpec is immutable: create another class",fieldPath=".providerSpec"
// +kubebuilder:validation:XValidation:rule="has(self.userDataRef) == has(oldSelf.userDataRef) && (!has(self.userDataRef) || self.userDataRef == oldSelf.userDataRef)",message="userDataRef is immutable: create another class, or change the content of the Secret",fieldPath=".userDataRef"
// +kubebuilder:validation:XValidation:rule="has(self.values) == has(oldSelf.values) && (!has(self.values) || self.values == oldSelf.values)",message="values are immutable: create another class, or change the content of their ConfigMaps and Secrets",fieldPath=".values"
type MachineClassSpec struct {
	// provider is the name of the provider process that serves this class, a DNS label such as azure. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Provider string `json:"provider"`

	// providerSpec describes the instance in the format of the provider, with apiVersion and kind. The provider
	// validates providerSpec. Immutable. To change machines, create another class and roll out this class. A rollback
	// to an earlier revision then remains possible.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	ProviderSpec *runtime.RawExtension `json:"providerSpec"`

	// credentialsRef names the Secret with the cloud credentials. It may be changed at any time, for example to rotate
	// the credentials. If unset, the provider uses credentials of its own environment.
	// +optional
	CredentialsRef *LocalRef `json:"credentialsRef,omitempty"`

	// userDataRef names the Secret with the bootstrap template. The reference is immutable. A change of the Secret's
	// content affects only instances that are created later.
	// +optional
	UserDataRef *UserDataRef `json:"userDataRef,omitempty"`

	// values are the texts that replace the placeholders <<VALUES.NAME>> in the user data. User data with an unknown
	// placeholder is refused. The list is immutable. A change of its ConfigMaps and Secrets affects only instances that
	// are created later.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Values []UserDataValue `json:"values,omitempty"`

	// adoption controls whether a Machine of this class may be created with the providerID of an existing instance:
	// Forbid or Allow. Defaults to Forbid.
	// +optional
	// +kubebuilder:default=Forbid
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// nodeProviderID is the provider ID of the Nodes of this class. Set nodeProviderID only if it differs from the
	// provider ID of the instance. The cloud controllers of some distributions set a different provider ID, such as
	// k3s://<<NODE_NAME>>.
	//
	// The placeholder <<NODE_NAME>> stands for the name under which the instance registers. <<INSTANCE_ID>> stands for
	// the last part of the provider ID of the instance, and <<REGION>> for its region. A change affects only instances
	// that are created later.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z][a-z0-9+.-]*://([^<> ]|<<REGION>>)*<<(NODE_NAME|INSTANCE_ID)>>([^<> ]|<<(NODE_NAME|INSTANCE_ID|REGION)>>)*$')",message="must begin with a scheme such as k3s:// and contain <<NODE_NAME>> or <<INSTANCE_ID>>; <<REGION>> is replaced too"
	NodeProviderID string `json:"nodeProviderID,omitempty"`

	// capacity describes the Nodes of this class, so that an autoscaler can plan without an existing Node. Values here
	// take precedence over values that the provider determines.
	// +optional
	Capacity *ClassCapacity `json:"capacity,omitempty"`
}

// ClassCapacity describes the Node that an instance of a class becomes.
type ClassCapacity struct {
	// resources of the Node, such as cpu, memory, ephemeral-storage or nvidia.com/gpu.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// instanceType is the value of the Node's label node.kubernetes.io/instance-type.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	InstanceType string `json:"instanceType,omitempty"`

	// region is the value of the Node's label topology.kubernetes.io/region.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`

	// zone is the value of the Node's label topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// architecture is the value of the Node's label kubernetes.io/arch, such as amd64 or arm64.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Architecture string `json:"architecture,omitempty"`

	// draDriver is the driver through which pods claim the devices of the Node by dynamic resource allocation. If
	// draDriver is set, an autoscaler expects devices of this driver instead of an extended resource.
	// +optional
	DRADriver *DRADriver `json:"draDriver,omitempty"`

	// csiDrivers are the volume drivers on the Node. An autoscaler uses csiDrivers to consider the volumes of pods.
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

	// devices is the number of devices of a Node. Defaults to the number of GPUs in the resources of the class.
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

	// volumeLimit is the number of volumes of the driver that a Node can attach. The default 0 means no limit.
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

	// region is the region in which the instance will run.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Region string `json:"region,omitempty"`

	// zone is the zone in which the instance will run. It is empty if the provider chooses the zone.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Zone string `json:"zone,omitempty"`
}

// MachineClassStatus contains what the provider determined about a class.
type MachineClassStatus struct {
	// observedGeneration is the generation of the class that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// capacity contains the resources that the provider determined for providerSpec.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo contains other properties of the Node that the provider determined for providerSpec.
	// +optional
	NodeInfo *NodeInfo `json:"nodeInfo,omitempty"`

	// account is the provider's name for the account of the current credentials. It is empty if the account is unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Account string `json:"account,omitempty"`

	// userDataHash is a short hash of the user data template that the Secret currently contains.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	UserDataHash string `json:"userDataHash,omitempty"`

	// capacityRetryTime is the time after which one machine tries to create an instance again, although the cloud had
	// no capacity for the class. The field is set while the condition CapacityAvailable is False.
	// +optional
	CapacityRetryTime *metav1.Time `json:"capacityRetryTime,omitempty"`

	// conditions of the class: Ready, CapacityAvailable, Deleting, OrphanRemovalBlocked, UserDataWarning,
	// UserDataChanged, AccountChanged and JoinBlocked. CapacityAvailable exists after the cloud has refused an instance
	// for lack of capacity. Except for Ready and CapacityAvailable, a condition exists only while it is True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineClass describes how to create an instance. Many machines share one class. The provider, providerSpec,
// userDataRef and values of a class never change. To change one of these fields for existing machines, let their fleet
// use another class. A class cannot be removed while a Machine uses it.
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

	// spec describes how to create an instance.
	// +required
	Spec MachineClassSpec `json:"spec"`

	// status contains what the provider determined about the class.
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
