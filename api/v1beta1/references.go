package v1beta1

// DefaultUserDataKey is the key of the bootstrap template in its Secret if userDataRef.key is not set.
const DefaultUserDataKey = "userData"

// LocalRef names an object in the same namespace.
type LocalRef struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// UserDataRef names the Secret in the same namespace that contains the bootstrap template of an instance.
type UserDataRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key of the template in the data of the Secret. Defaults to userData.
	// +optional
	// +kubebuilder:default=userData
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`

	// compress selects a compression format. Machinist compresses the user data after it has replaced the
	// placeholders. Use compression for clouds that limit the size of user data. The only format is gzip, which
	// cloud-init can read. If unset, the user data stays as it is in the Secret.
	// +optional
	Compress UserDataCompression `json:"compress,omitempty"`
}

// UserDataCompression is a format in which user data is passed to the cloud.
// +kubebuilder:validation:Enum=gzip
type UserDataCompression string

// UserDataGzip compresses user data with gzip.
const UserDataGzip UserDataCompression = "gzip"

// KeyOrDefault returns the key of the template in the Secret. If the field key is unset, KeyOrDefault returns
// DefaultUserDataKey.
func (r UserDataRef) KeyOrDefault() string {
	if r.Key == "" {
		return DefaultUserDataKey
	}
	return r.Key
}

// UserDataValue is the text that replaces a placeholder in user data. Exactly one of value and valueFrom is set.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="exactly one of value and valueFrom must be set"
type UserDataValue struct {
	// name of the value. The placeholder <<VALUES.NAME>> refers to the value. The name begins with a letter and
	// consists of letters, digits, _ and -.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_-]*$`
	Name string `json:"name"`

	// value contains the text that replaces the placeholder.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`

	// valueFrom is the source of the text.
	// +optional
	ValueFrom *UserDataValueSource `json:"valueFrom,omitempty"`
}

// UserDataValueSource selects a key of a ConfigMap or a Secret in the namespace of the class. The ConfigMap or Secret
// must have the label machinist.dev/secret-use with the value user-data.
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="exactly one of configMapKeyRef and secretKeyRef must be set"
type UserDataValueSource struct {
	// configMapKeyRef selects a key of a ConfigMap. The provider needs the permission to read the ConfigMap. Grant
	// this permission with the value userDataConfigMaps of the chart machinist-provider.
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`

	// secretKeyRef selects a key of a Secret. A finalizer keeps the Secret while a class refers to it.
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
}

// KeyRef selects a key of an object in the same namespace.
type KeyRef struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key in the data of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}
