package machinedeployment

import (
	"fmt"
	"maps"

	"machinist.dev/machinist/api/v1beta1"
)

// propagate writes to a set the fields of its deployment that are propagated to machines in place: all that cause no
// rollout. The set keeps the fields that cause one, so it stays of its revision.
func propagate(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) {
	set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	set.Spec.DeletePolicy = d.DeletePolicyOrDefault()

	old := set.Spec.Template
	template := d.Spec.Template.DeepCopy()
	keepWhatRolls(&template.Spec, &old.Spec)
	template.ObjectMeta.Labels = with(template.ObjectMeta.Labels, ownLabels(set, d))
	// A set that was adopted may select by more than the deployment does.
	template.ObjectMeta.Labels = with(template.ObjectMeta.Labels, set.Spec.Selector.MatchLabels)
	set.Spec.Template = *template

	// The set itself carries the labels of its template, so that the deployment's selector finds it.
	for key := range old.ObjectMeta.Labels {
		if _, wanted := template.ObjectMeta.Labels[key]; !wanted {
			delete(set.Labels, key)
		}
	}
	set.Labels = with(set.Labels, template.ObjectMeta.Labels)
	set.Labels = with(set.Labels, map[string]string{v1beta1.AutoscalerDeploymentNameLabel: d.Name})
}

// keepWhatRolls gives spec the fields of old that cause a rollout.
func keepWhatRolls(spec, old *v1beta1.MachineSpec) {
	sameForm := spec.Provider == old.Provider && (spec.ClassRef == nil) == (old.ClassRef == nil)
	spec.Provider, spec.ProviderSpec, spec.ClassRef = old.Provider, old.ProviderSpec, old.ClassRef
	spec.UserDataRef, spec.Version = old.UserDataRef, old.Version
	if !sameForm {
		// Credentials of another provider, or of an inline spec where there is a class, do not fit.
		spec.CredentialsRef = old.CredentialsRef
	}
}

// mostTemplateLabels is how many labels the API admits in a template. The template of a set has two labels more than
// that of its deployment.
const mostTemplateLabels = 64

// tooManyLabels says that the deployment's template has too many labels for a set, empty if it has not.
func tooManyLabels(d *v1beta1.MachineDeployment) string {
	labels := d.Spec.Template.ObjectMeta.Labels
	ours := map[string]string{v1beta1.LabelMachineDeployment: "", v1beta1.LabelTemplateHash: ""}
	if len(with(labels, ours)) <= mostTemplateLabels {
		return ""
	}
	return fmt.Sprintf("spec.template.metadata.labels: %d labels are too many: with those of each set, %s and %s, there may be %d.",
		len(labels), v1beta1.LabelMachineDeployment, v1beta1.LabelTemplateHash, mostTemplateLabels)
}

// ownLabels are the labels that identify the machines of a set.
func ownLabels(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) map[string]string {
	labels := map[string]string{v1beta1.LabelMachineDeployment: d.Name}
	if hash, ok := set.Spec.Selector.MatchLabels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	} else if hash, ok := set.Labels[v1beta1.LabelTemplateHash]; ok {
		labels[v1beta1.LabelTemplateHash] = hash
	}
	return labels
}

// with returns a map that has the entries of both; those of added win.
func with(base, added map[string]string) map[string]string {
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(map[string]string, len(added))
	}
	maps.Copy(merged, added)
	return merged
}
