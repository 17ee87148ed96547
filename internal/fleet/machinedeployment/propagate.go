package machinedeployment

import (
	"fmt"
	"maps"

	"machinist.dev/machinist/api/v1beta1"
)

// propagate copies the fields that cause no rollout from the deployment to its set. The set then propagates these
// fields to its machines in place.
func propagate(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) {
	set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	set.Spec.DeletePolicy = d.DeletePolicyOrDefault()
	set.Spec.Hibernated = d.Spec.Hibernated
	if classesOf(set.Spec.Placement) == classesOf(d.Spec.Placement) {
		set.Spec.Placement = d.Spec.Placement.DeepCopy()
	}

	old := set.Spec.Template
	template := d.Spec.Template.DeepCopy()
	keepRolloutFields(&template.Spec, &old.Spec)
	template.ObjectMeta.Labels = union(template.ObjectMeta.Labels, ownLabels(set, d))
	// An adopted set may select by more labels than the deployment.
	template.ObjectMeta.Labels = union(template.ObjectMeta.Labels, set.Spec.Selector.MatchLabels)
	set.Spec.Template = *template

	// The set carries the labels of its template, so that the deployment's selector matches it.
	for key := range old.ObjectMeta.Labels {
		if _, wanted := template.ObjectMeta.Labels[key]; !wanted {
			delete(set.Labels, key)
		}
	}
	set.Labels = union(set.Labels, template.ObjectMeta.Labels)
	set.Labels = union(set.Labels, map[string]string{v1beta1.AutoscalerDeploymentNameLabel: d.Name})
}

func keepRolloutFields(spec, old *v1beta1.MachineSpec) {
	sameForm := spec.Provider == old.Provider && (spec.ClassRef == nil) == (old.ClassRef == nil)
	spec.Provider, spec.ProviderSpec, spec.ClassRef = old.Provider, old.ProviderSpec, old.ClassRef
	spec.UserDataRef, spec.Version = old.UserDataRef, old.Version
	if !sameForm {
		// The new credentials do not fit the old machines, which have another provider, or a class instead of an inline
		// specification (or the reverse).
		spec.CredentialsRef = old.CredentialsRef
	}
}

// maxTemplateLabels is the API's limit for a template. A set adds two labels to the deployment's template.
const maxTemplateLabels = 64

// tooManyLabels returns a message if a set could not hold the labels of the deployment's template.
func tooManyLabels(d *v1beta1.MachineDeployment) string {
	labels := d.Spec.Template.ObjectMeta.Labels
	ours := map[string]string{v1beta1.LabelMachineDeployment: "", v1beta1.LabelTemplateHash: ""}
	if len(union(labels, ours)) <= maxTemplateLabels {
		return ""
	}
	return fmt.Sprintf("spec.template.metadata.labels: %d labels are too many: together with %s and %s, at most %d are allowed",
		len(labels), v1beta1.LabelMachineDeployment, v1beta1.LabelTemplateHash, maxTemplateLabels)
}

func ownLabels(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) map[string]string {
	labels := map[string]string{v1beta1.LabelMachineDeployment: d.Name}
	if hash, ok := set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	} else if hash, ok := set.Labels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	}
	return labels
}

func union(base, added map[string]string) map[string]string {
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(map[string]string, len(added))
	}
	maps.Copy(merged, added)
	return merged
}
