package source

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeTokenGroups: the bootstrap tokens of the old system are in additional groups, to which Machinist's tokens
	// do not belong.
	CodeTokenGroups = "TokenGroups"
	// CodeOldClassKind: a Machine refers to a class of an older kind, which was specific to one cloud.
	CodeOldClassKind = "OldClassKind"
)

const nvidiaGPU = "nvidia.com/gpu"

const sapcloudUserData = "userData"

func (r *sapcloudReader) class() {
	f := r.fields
	class := &Class{Name: r.metadata.name, Provider: f.text("provider"), Path: "providerSpec"}
	if class.Provider == "" {
		f.report(provider.FindingBlocker, CodeMissingField, "provider", "The class does not name a cloud.")
	}
	if spec, found := fieldAs[map[string]any](f, "providerSpec", "an object"); found {
		class.Spec = runtime.DeepCopyJSON(spec) // The driver reads all fields and reports unknown fields.
	} else {
		f.report(provider.FindingBlocker, CodeMissingField, "providerSpec", "The class has no description of an instance.")
	}
	secret, credentials := r.secret("secretRef"), r.secret("credentialsSecretRef")
	if secret != nil {
		class.Credentials = append(class.Credentials, *secret)
		class.UserData = &KeyRef{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, Key: sapcloudUserData}
		r.tokenGroups()
	} else {
		f.report(provider.FindingLoss, CodeUserData, "secretRef", "The class has no user data. Name a Secret with user "+
			"data for new machines in spec.userDataRef of the Migration.")
	}
	if credentials != nil {
		class.Credentials = append(class.Credentials, *credentials)
	}
	class.Capacity = r.capacity()
	if class.Provider != "" && class.Spec != nil {
		r.converted.Class = class
	}
}

func (r *sapcloudReader) secret(name string) *types.NamespacedName {
	f := r.fields.child(name)
	ref := types.NamespacedName{Namespace: f.text("namespace"), Name: f.text("name")}
	switch {
	case ref.Name == "" && len(f.object) == 0:
		return nil
	case ref.Name == "":
		f.report(provider.FindingBlocker, CodeMissingField, "name", "The reference does not name a Secret.")
		return nil
	case ref.Namespace == "":
		ref.Namespace = r.namespace
	}
	return &ref
}

// tokenGroups reports additional groups of the bootstrap tokens, which Machinist's tokens do not have.
func (r *sapcloudReader) tokenGroups() {
	if groups := r.flags[sapcloudGroupsFlag]; groups != "" {
		r.fields.report(provider.FindingLoss, CodeTokenGroups, "secretRef", "The old controller adds bootstrap tokens to "+
			"the groups %.200s (flag %s). Machinist's tokens are in the group system:bootstrappers:machinist. Bind the "+
			"roles of the old groups to that group, or new machines cannot join.", groups, sapcloudGroupsFlag)
	}
}

func (r *sapcloudReader) capacity() *v1beta1.ClassCapacity {
	f := r.fields.child("nodeTemplate")
	capacity := &v1beta1.ClassCapacity{InstanceType: f.text("instanceType"), Region: f.text("region"),
		Zone: f.text("zone"), Architecture: f.text("architecture")}
	f.decode("capacity", &capacity.Resources)
	// The old autoscaler has its own resource name for GPUs, and assumes NVIDIA GPUs.
	if n, found := capacity.Resources["gpu"]; found {
		delete(capacity.Resources, "gpu")
		if _, other := capacity.Resources[nvidiaGPU]; !n.IsZero() && !other {
			capacity.Resources[nvidiaGPU] = n
		}
	}
	f.reportLoss("Machinist does not add resources to Nodes that kubelets do not report.", "virtualCapacity")
	if len(f.object) == 0 {
		return nil
	}
	return capacity
}
