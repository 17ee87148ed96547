package migrate

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"machinist.dev/machinist/api/v1beta1"
)

// Manifest is a converted object.
type Manifest struct {
	Kind, Name string
	// JSON is the object as it is when the migration is completed, without status.
	JSON json.RawMessage
}

// laterAnnotation is what the annotation v1beta1.AnnotationAfterMigration holds.
type laterAnnotation struct {
	Annotations map[string]string       `json:"annotations"`
	Replicas    *int32                  `json:"replicas"`
	Remediation v1beta1.RemediationType `json:"remediation"`
}

// manifestOf returns a converted object as it is when the migration is completed: a tool that applied it as the
// migration makes it would freeze the fleet again, and let classes adopt instances.
func manifestOf(raw json.RawMessage) (Manifest, error) {
	o := &unstructured.Unstructured{}
	// Whole numbers stay such.
	if err := utiljson.Unmarshal(raw, &o.Object); err != nil {
		return Manifest{}, err
	}
	manifest := Manifest{Kind: o.GetKind(), Name: o.GetName()}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	later := laterAnnotation{}
	if text, found := annotations[v1beta1.AnnotationAfterMigration]; found {
		if err := json.Unmarshal([]byte(text), &later); err != nil {
			return Manifest{}, fmt.Errorf("annotation %s of %s %s: %w", v1beta1.AnnotationAfterMigration, manifest.Kind,
				manifest.Name, err)
		}
	}
	delete(labels, v1beta1.LabelMigration)
	if labels[v1beta1.LabelFreeze] == v1beta1.FreezeMigration {
		delete(labels, v1beta1.LabelFreeze)
	}
	delete(annotations, v1beta1.AnnotationAfterMigration)
	for key, value := range later.Annotations {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	setOrRemove(o, labels, "metadata", "labels")
	setOrRemove(o, annotations, "metadata", "annotations")
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(o.Object, "spec", "adoption")
	var err error
	if later.Replicas != nil {
		err = unstructured.SetNestedField(o.Object, int64(*later.Replicas), "spec", "replicas")
	}
	if err == nil && later.Remediation != "" {
		err = unstructured.SetNestedField(o.Object, string(later.Remediation), "spec", "remediation", "type")
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("%s %s: %w", manifest.Kind, manifest.Name, err)
	}
	manifest.JSON, err = json.Marshal(o.Object)
	return manifest, err
}

func setOrRemove(o *unstructured.Unstructured, all map[string]string, path ...string) {
	if len(all) == 0 {
		unstructured.RemoveNestedField(o.Object, path...)
		return
	}
	_ = unstructured.SetNestedStringMap(o.Object, all, path...) // metadata is an object, or it would have had none.
}
