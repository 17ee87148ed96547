package v1beta1

// DefaultUserDataKey is the key of the bootstrap template in its Secret unless userDataRef.key names another.
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

// UserDataRef names the Secret in the same namespace that holds the bootstrap template of an instance.
type UserDataRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key of the template in the Secret's data. Defaults to userData.
	// +optional
	// +kubebuilder:default=userData
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`

	// compress has Machinist compress the user data after its placeholders are replaced, for clouds that limit its size:
	// gzip, which cloud-init reads. Without it the user data reaches the instance as it is in the Secret, compressed or
	// not.
	// +optional
	Compress UserDataCompression `json:"compress,omitempty"`
}

// UserDataCompression is a format in which user data is handed to the cloud.
// +kubebuilder:validation:Enum=gzip
type UserDataCompression string

// UserDataGzip compresses user data with gzip.
const UserDataGzip UserDataCompression = "gzip"

// KeyOrDefault returns the key of the template in the Secret, userData if there is none named.
func (r UserDataRef) KeyOrDefault() string {
	if r.Key == "" {
		return DefaultUserDataKey
	}
	return r.Key
}

// UserDataValue is what a placeholder in user data stands for: value or valueFrom.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="exactly one of value and valueFrom must be set"
type UserDataValue struct {
	// name of the placeholder <<VALUES.NAME>>: letters, digits, _ and -.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_-]*$`
	Name string `json:"name"`

	// value is the text itself.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`

	// valueFrom is where the text is.
	// +optional
	ValueFrom *UserDataValueSource `json:"valueFrom,omitempty"`
}

// UserDataValueSource is one key of a ConfigMap or a Secret in the class's namespace, which must have the label
// machinist.dev/secret-use with the value user-data.
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="exactly one of configMapKeyRef and secretKeyRef must be set"
type UserDataValueSource struct {
	// configMapKeyRef names a ConfigMap. The provider needs the right to read it: value userDataConfigMaps of the chart
	// machinist-provider.
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`

	// secretKeyRef names a Secret. It is kept while a class refers to it.
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
}

// KeyRef is a key of an object in the same namespace.
type KeyRef struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// key in the object's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}
