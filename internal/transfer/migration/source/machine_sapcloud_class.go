package source

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeTokenGroups: bootstrap tokens of the old system are in groups in which Machinist's are not.
	CodeTokenGroups = "TokenGroups"
	// CodeOldClassKind: a Machine refers to a class of one cloud's own kind, from before there were common ones.
	CodeOldClassKind = "OldClassKind"
)

// nvidiaGPU is the resource of NVIDIA's GPUs.
const nvidiaGPU = "nvidia.com/gpu"

// sapcloudUserData is the key of the user data in the Secret of a class.
const sapcloudUserData = "userData"

func (r *sapcloudReader) class() {
	f := r.fields
	class := &Class{Name: r.metadata.name, Provider: f.text("provider"), Path: "providerSpec"}
	if class.Provider == "" {
		f.find(provider.FindingBlocker, CodeMissingField, "provider", "The class names no cloud.")
	}
	if spec, found := typed[map[string]any](f, "providerSpec", "an object"); found {
		class.Spec = runtime.DeepCopyJSON(spec) // The driver reads all of it, and reports what it does not know.
	} else {
		f.find(provider.FindingBlocker, CodeMissingField, "providerSpec", "The class describes no instance.")
	}
	secret, credentials := r.secret("secretRef"), r.secret("credentialsSecretRef")
	if secret != nil {
		class.Credentials = append(class.Credentials, *secret)
		class.UserData = &KeyRef{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, Key: sapcloudUserData}
		r.tokenGroups()
	} else {
		f.find(provider.FindingLoss, CodeUserData, "secretRef", "The class has no user data. Name a Secret with user data "+
			"for new machines in spec.userDataRef of the Migration.")
	}
	if credentials != nil {
		class.Credentials = append(class.Credentials, *credentials)
	}
	class.Capacity = r.capacity()
	if class.Provider != "" && class.Spec != nil {
		r.converted.Class = class
	}
}

// secret reads a reference to a Secret, nil where there is none.
func (r *sapcloudReader) secret(name string) *types.NamespacedName {
	f := r.fields.child(name)
	ref := types.NamespacedName{Namespace: f.text("namespace"), Name: f.text("name")}
	switch {
	case ref.Name == "" && len(f.object) == 0:
		return nil
	case ref.Name == "":
		f.find(provider.FindingBlocker, CodeMissingField, "name", "The reference names no Secret.")
		return nil
	case ref.Namespace == "":
		ref.Namespace = r.namespace
	}
	return &ref
}

// tokenGroups reports the groups of the old system's bootstrap tokens, which are not those of Machinist's.
func (r *sapcloudReader) tokenGroups() {
	const flag = "bootstrap-token-auth-extra-groups"
	if groups := r.flags[flag]; groups != "" {
		r.fields.find(provider.FindingLoss, CodeTokenGroups, "secretRef", "The old controller puts bootstrap tokens into "+
			"the groups %.200s (its flag %s). Machinist's are in system:bootstrappers:machinist: bind the roles of those "+
			"groups to it, or new machines cannot join.", groups, flag)
	}
}

// capacity reads what the autoscaler expects of a node, nil where the class does not have it.
func (r *sapcloudReader) capacity() *v1beta1.ClassCapacity {
	f := r.fields.child("nodeTemplate")
	capacity := &v1beta1.ClassCapacity{InstanceType: f.text("instanceType"), Region: f.text("region"),
		Zone: f.text("zone"), Architecture: f.text("architecture")}
	f.into("capacity", &capacity.Resources)
	// The autoscaler of the old system has a name of its own for GPUs, and takes them for NVIDIA's.
	if n, found := capacity.Resources["gpu"]; found {
		delete(capacity.Resources, "gpu")
		if _, other := capacity.Resources[nvidiaGPU]; !n.IsZero() && !other {
			capacity.Resources[nvidiaGPU] = n
		}
	}
	f.loses("Machinist adds no resources to Nodes that kubelets do not report.", "virtualCapacity")
	if len(f.object) == 0 {
		return nil
	}
	return capacity
}
