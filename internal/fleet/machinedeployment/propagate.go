package machinedeployment

import (
	"fmt"
	"maps"

	"machinist.dev/machinist/api/v1beta1"
)

// propagate copies those fields of a deployment to its set that the set then propagates to machines in place. These are
// all fields that do not cause a rollout. The set keeps the fields that cause a rollout, so the revision of the set
// does not change.
func propagate(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) {
	set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	set.Spec.DeletePolicy = d.DeletePolicyOrDefault()

	old := set.Spec.Template
	template := d.Spec.Template.DeepCopy()
	keepRolloutFields(&template.Spec, &old.Spec)
	template.ObjectMeta.Labels = union(template.ObjectMeta.Labels, ownLabels(set, d))
	// The selector of an adopted set may contain more labels than the selector of the deployment.
	template.ObjectMeta.Labels = union(template.ObjectMeta.Labels, set.Spec.Selector.MatchLabels)
	set.Spec.Template = *template

	// The set itself also has the labels of its template, so that the deployment's selector matches the set.
	for key := range old.ObjectMeta.Labels {
		if _, wanted := template.ObjectMeta.Labels[key]; !wanted {
			delete(set.Labels, key)
		}
	}
	set.Labels = union(set.Labels, template.ObjectMeta.Labels)
	set.Labels = union(set.Labels, map[string]string{v1beta1.AutoscalerDeploymentNameLabel: d.Name})
}

// keepRolloutFields copies the fields that cause a rollout from old to spec.
func keepRolloutFields(spec, old *v1beta1.MachineSpec) {
	sameForm := spec.Provider == old.Provider && (spec.ClassRef == nil) == (old.ClassRef == nil)
	spec.Provider, spec.ProviderSpec, spec.ClassRef = old.Provider, old.ProviderSpec, old.ClassRef
	spec.UserDataRef, spec.Version = old.UserDataRef, old.Version
	if !sameForm {
		// The credentials in spec would belong to another provider, or to an inline provider spec although the set
		// has a class.
		spec.CredentialsRef = old.CredentialsRef
	}
}

// maxTemplateLabels is the maximum number of labels that the API admits in a template. The template of a set has two
// more labels than the template of its deployment.
const maxTemplateLabels = 64

// tooManyLabels returns a message if the deployment's template has too many labels for a set, or "" otherwise.
func tooManyLabels(d *v1beta1.MachineDeployment) string {
	labels := d.Spec.Template.ObjectMeta.Labels
	ours := map[string]string{v1beta1.LabelMachineDeployment: "", v1beta1.LabelTemplateHash: ""}
	if len(union(labels, ours)) <= maxTemplateLabels {
		return ""
	}
	return fmt.Sprintf("spec.template.metadata.labels: %d labels are too many: together with %s and %s, at most %d are allowed",
		len(labels), v1beta1.LabelMachineDeployment, v1beta1.LabelTemplateHash, maxTemplateLabels)
}

// ownLabels returns the labels that identify the machines of a set.
func ownLabels(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) map[string]string {
	labels := map[string]string{v1beta1.LabelMachineDeployment: d.Name}
	if hash, ok := set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	} else if hash, ok := set.Labels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	}
	return labels
}

// union returns a new map with the entries of both given maps. If both maps contain a key, the value in added takes
// precedence.
func union(base, added map[string]string) map[string]string {
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(map[string]string, len(added))
	}
	maps.Copy(merged, added)
	return merged
}
