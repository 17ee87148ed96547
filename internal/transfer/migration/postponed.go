package migration

import (
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
)

type postponed struct {
	Annotations map[string]string       `json:"annotations,omitempty"`
	Replicas    *int32                  `json:"replicas,omitempty"`
	Remediation v1beta1.RemediationType `json:"remediation,omitempty"`
	// Delete is true if the old machine was being deleted.
	Delete bool `json:"delete,omitempty"`
}

func (p *planner) postpone(object client.Object, a postponed) {
	data, _ := json.Marshal(a) // Strings and numbers can always be encoded.
	annotate(object, v1beta1.AnnotationAfterMigration, string(data))
}

// postponedFor returns the recorded change of an object. If the record is missing or invalid, postponedFor returns a
// change that does nothing.
func postponedFor(object client.Object) (a postponed) {
	if err := json.Unmarshal([]byte(object.GetAnnotations()[v1beta1.AnnotationAfterMigration]), &a); err != nil {
		return postponed{}
	}
	return a
}

func completionPatch(object client.Object) map[string]any {
	later := postponedFor(object)
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
		if object.GetLabels()[v1beta1.LabelFreeze] == v1beta1.FreezeMigration { // Keep a freeze that the user has set.
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

// completedYAML returns an object in its form after the migration. Users may apply this YAML later. Therefore the YAML
// must neither freeze the fleet again nor permit adoption.
func completedYAML(object client.Object) ([]byte, error) {
	object = object.DeepCopyObject().(client.Object)
	object.GetObjectKind().SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kindOf(object)))
	made, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(completionPatch(object))
	if err != nil {
		return nil, err
	}
	if made, err = jsonpatch.MergePatch(made, patch); err != nil {
		return nil, err
	}
	result := map[string]any{}
	if err := utiljson.Unmarshal(made, &result); err != nil { // Unlike json.Unmarshal, this keeps integers.
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
