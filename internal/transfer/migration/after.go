package migration

import (
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
)

// after is what an object gets when its migration is completed.
type after struct {
	Annotations map[string]string       `json:"annotations,omitempty"`
	Replicas    *int32                  `json:"replicas,omitempty"`
	Remediation v1beta1.RemediationType `json:"remediation,omitempty"`
	// Delete: the old machine was being deleted.
	Delete bool `json:"delete,omitempty"`
}

// holdBack records on an object what it gets later.
func (p *planner) holdBack(object client.Object, a after) {
	data, _ := json.Marshal(a) // Strings and numbers always marshal.
	annotate(object, v1beta1.AnnotationAfterMigration, string(data))
}

// afterOf returns what was recorded on an object. What is unreadable counts as nothing.
func afterOf(object client.Object) (a after) {
	if err := json.Unmarshal([]byte(object.GetAnnotations()[v1beta1.AnnotationAfterMigration]), &a); err != nil {
		return after{}
	}
	return a
}

// completion is the merge patch that makes an object what it is after the migration.
func completion(object client.Object) map[string]any {
	later := afterOf(object)
	labels := map[string]any{v1beta1.LabelMigration: nil}
	annotations := map[string]any{v1beta1.AnnotationAfterMigration: nil}
	for key, value := range later.Annotations {
		annotations[key] = value
	}
	spec := map[string]any{}
	switch object.(type) {
	case *v1beta1.MachineHealthCheck:
		if later.Remediation != "" {
			spec["remediation"] = map[string]any{"type": later.Remediation}
		}
	case *v1beta1.MachineClass:
		spec["adoption"] = v1beta1.AdoptionForbid
	case *v1beta1.MachineSet, *v1beta1.MachineDeployment:
		if object.GetLabels()[v1beta1.LabelFreeze] == v1beta1.FreezeMigration { // Not what a person froze meanwhile.
			labels[v1beta1.LabelFreeze] = nil
		}
		if later.Replicas != nil {
			spec["replicas"] = *later.Replicas
		}
	}
	patch := map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

// completed returns an object of the plan as it is after the migration, in YAML: a tool that applied it as the
// migration makes it would freeze the fleet again, and let classes adopt instances.
func completed(object client.Object) ([]byte, error) {
	object = object.DeepCopyObject().(client.Object)
	object.GetObjectKind().SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kindOf(object)))
	made, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(completion(object))
	if err != nil {
		return nil, err
	}
	if made, err = jsonpatch.MergePatch(made, patch); err != nil {
		return nil, err
	}
	result := map[string]any{}
	if err := utiljson.Unmarshal(made, &result); err != nil { // Whole numbers stay such.
		return nil, err
	}
	delete(result, "status")
	metadata := result["metadata"].(map[string]any)
	for key, value := range metadata {
		if entries, is := value.(map[string]any); value == nil || is && len(entries) == 0 {
			delete(metadata, key)
		}
	}
	return yaml.Marshal(result)
}
