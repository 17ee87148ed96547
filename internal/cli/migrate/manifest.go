package migrate

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manifest is a converted object.
type Manifest struct {
	Kind, Name string
	// JSON is the object after the migration, without its status.
	JSON json.RawMessage
}

func manifestOf(raw json.RawMessage) (Manifest, error) {
	o := metav1.PartialObjectMetadata{}
	err := json.Unmarshal(raw, &o)
	return Manifest{Kind: o.Kind, Name: o.Name, JSON: raw}, err
}
