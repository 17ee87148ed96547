package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// ProviderTypeAuto is the spec.type of a Provider whose type Machinist detects from the provider IDs of the Nodes.
	ProviderTypeAuto = "Auto"

	// DefaultProviderReplicas is the number of replicas of a provider process if spec.replicas is not set.
	DefaultProviderReplicas = 2

	// DefaultKubeconfigKey is the key of a kubeconfig in its Secret if the reference does not name a key.
	DefaultKubeconfigKey = "kubeconfig"

	// MaxProviderNameLength is the maximum length of the name of a Provider. The name is also the value of a label.
	MaxProviderNameLength = 63
)

// ProviderSpec defines which provider process runs, and how.
//
// +kubebuilder:validation:XValidation:rule="self.type == oldSelf.type",message="type is immutable: create another Provider, and delete this one when no Machine needs it",fieldPath=".type"
// +kubebuilder:validation:XValidation:rule="self.type != 'Auto' || !has(self.target) || !(has(self.target.kubeconfigSecretRef) || has(self.target.none) && self.target.none)",message="type must be set: Auto detects it from the Nodes of the operator's own cluster, but target names another cluster or none",fieldPath=".type"
type ProviderSpec struct {
	// type is the name of the provider, a DNS label such as azure or sim. With Auto, the provider IDs of the Nodes
	// determine the type. A type that does not come with Machinist requires image.repository. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^(Auto|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	Type string `json:"type"`

	// image of the provider process. Defaults to Machinist's image with the version of the operator.
	// +optional
	Image ProviderImage `json:"image,omitzero"`

	// replicas of the process. One replica is the leader. When the leader ends, another replica takes over. With 0,
	// no process runs, and no machines are changed. Defaults to 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`

	// control defines how the process accesses the control cluster, which contains the Machines. If unset, the process
	// uses its service account in the cluster of this Provider.
	// +optional
	Control ProviderControl `json:"control,omitzero"`

	// target defines how the process accesses the target cluster, in which the machines become Nodes. If unset, the
	// process uses its service account in the cluster of this Provider.
	// +optional
	Target ProviderTarget `json:"target,omitzero"`

	// watchNamespace is the only namespace of the control cluster whose Machines are served. If empty, all namespaces
	// are served.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	WatchNamespace string `json:"watchNamespace,omitempty"`

	// extraArgs are additional flags of the process, such as --max-in-flight-creates=20 or flags of the provider. Flags
	// that follow from other fields are refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:Pattern=`^--[a-z0-9]`
	// +kubebuilder:validation:XValidation:rule="self.all(a, !a.matches('^--(control-kubeconfig|target-kubeconfig|namespace|leader-elect|leader-election-namespace)(=.*)?$'))",message="set spec.control, spec.target and spec.watchNamespace instead of their flags; the operator sets those of leader election"
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// values are additional values of the chart machinist-provider, such as resources or tolerations. The other
	// fields of this spec take precedence. A value that the chart does not know is refused. The error message
	// contains the path of such a value.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Values *runtime.RawExtension `json:"values,omitempty"`
}

// ProviderImage names the image of a provider process.
type ProviderImage struct {
	// registry from which the image is pulled, such as registry.example.com/machinist. Defaults to the registry of
	// Machinist's images.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`
	Registry string `json:"registry,omitempty"`

	// repository in the registry. Defaults to machinist-provider-<type>.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`
	Repository string `json:"repository,omitempty"`

	// tag of the image. Defaults to the version of the operator.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][-A-Za-z0-9._]*$`
	Tag string `json:"tag,omitempty"`

	// digest of the image, such as sha256:<64 hexadecimal digits>. The digest takes precedence over the tag.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:Pattern=`^sha256:[a-f0-9]{64}$`
	Digest string `json:"digest,omitempty"`

	// pullPolicy defines when the kubelet pulls the image: Always, IfNotPresent or Never. Defaults to IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`

	// pullSecrets are Secrets in the operator's namespace that contain credentials for the registry.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	PullSecrets []LocalRef `json:"pullSecrets,omitempty"`
}

// ProviderControl defines how a provider process accesses the control cluster.
type ProviderControl struct {
	// kubeconfigSecretRef names a Secret in the operator's namespace that contains the kubeconfig of the control
	// cluster.
	// +optional
	KubeconfigSecretRef *KubeconfigRef `json:"kubeconfigSecretRef,omitempty"`
}

// ProviderTarget defines how a provider process accesses the target cluster.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.kubeconfigSecretRef) && has(self.none) && self.none)",message="none and kubeconfigSecretRef exclude each other: remove one of them",fieldPath=".none"
type ProviderTarget struct {
	// kubeconfigSecretRef names a Secret in the operator's namespace that contains the kubeconfig of the target
	// cluster.
	// +optional
	KubeconfigSecretRef *KubeconfigRef `json:"kubeconfigSecretRef,omitempty"`

	// none is true if there is no target cluster, so that the machines do not become Nodes.
	// +optional
	None bool `json:"none,omitempty"`
}

// KubeconfigRef names a Secret in the operator's namespace that contains a kubeconfig.
type KubeconfigRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key of the kubeconfig in the data of the Secret. Defaults to kubeconfig.
	// +optional
	// +kubebuilder:default=kubeconfig
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// KeyOrDefault returns the key of the kubeconfig in the Secret, kubeconfig if unset.
func (r KubeconfigRef) KeyOrDefault() string {
	if r.Key == "" {
		return DefaultKubeconfigKey
	}
	return r.Key
}

// ProviderStatus is what the operator installed and observed.
type ProviderStatus struct {
	// observedGeneration is the most recent generation of the Provider that the operator has acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// type of the installed provider: spec.type, or the detected type. A detected type does not change later.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	Type string `json:"type,omitempty"`

	// detected is the result of the detection if spec.type is Auto.
	// +optional
	Detected *DetectedPlatform `json:"detected,omitempty"`

	// process is the name of the provider process, of its Deployment and of its service account.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Process string `json:"process,omitempty"`

	// version is the running version, which is the image tag of the ready pods. For an image without a tag, the
	// version is a part of the image digest. If pods of several versions run, all versions are listed.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Version string `json:"version,omitempty"`

	// desiredVersion is the version of the current or last rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DesiredVersion string `json:"desiredVersion,omitempty"`

	// installed contains the objects that the operator created for this Provider. The operator removes these objects
	// when they are no longer needed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Installed []InstalledObject `json:"installed,omitempty"`

	// conditions of the Provider: Available, Progressing, Degraded, and Deleting while it is being deleted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DetectedPlatform is the platform that was detected from the provider IDs of the Nodes.
type DetectedPlatform struct {
	// type of the provider to which the provider IDs belong.
	// +required
	// +kubebuilder:validation:MaxLength=44
	Type string `json:"type"`

	// nodes is the number of Nodes that had a provider ID of that type at the time of the detection.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes"`

	// totalNodes is the number of all Nodes at the time of the detection.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TotalNodes int32 `json:"totalNodes"`
}

// InstalledObject names an object that the operator created.
type InstalledObject struct {
	// apiVersion of the object.
	// +required
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace of the object. It is empty if the kind is not namespaced.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Provider declares a provider process that runs in the cluster. machinist-operator installs the process, keeps the
// process as declared, and removes the process. A Provider cannot be removed while a Machine, or a MachineClass in
// use, needs its process.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=providers,scope=Cluster,shortName=mp,categories=machinist
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters, because it becomes the value of a label"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Process",type=string,priority=1,JSONPath=`.status.process`
// +kubebuilder:printcolumn:name="Desired",type=string,priority=1,JSONPath=`.status.desiredVersion`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
type Provider struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines which provider process runs, and how.
	// +required
	Spec ProviderSpec `json:"spec"`

	// status is what the operator installed and observed.
	// +optional
	Status ProviderStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the Provider.
func (p *Provider) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the conditions of the Provider.
func (p *Provider) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// ReplicasOrDefault returns the number of replicas of the process, 2 if unset.
func (p *Provider) ReplicasOrDefault() int32 {
	if p.Spec.Replicas == nil {
		return DefaultProviderReplicas
	}
	return *p.Spec.Replicas
}

// ProviderList is a list of Providers.
//
// +kubebuilder:object:root=true
type ProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Provider `json:"items"`
}
