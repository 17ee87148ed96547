package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// patchFrom returns a patch that fails if another client has changed the object.
func patchFrom(before client.Object) client.Patch {
	if m, ok := before.(*v1beta1.Migration); ok {
		return migrationPatch{before: m}
	}
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// migrationPatch replaces each changed field of a Migration's spec as a whole. A merge patch would remove the nulls
// from spec.overrides, but a null in an override removes a field of a class.
type migrationPatch struct{ before *v1beta1.Migration }

// Type implements client.Patch.
func (migrationPatch) Type() types.PatchType { return types.JSONPatchType }

type jsonPatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Data implements client.Patch.
func (p migrationPatch) Data(object client.Object) ([]byte, error) {
	if !maps.Equal(p.before.Annotations, object.GetAnnotations()) || !maps.Equal(p.before.Labels, object.GetLabels()) {
		return nil, errors.New("a patch of a Migration cannot change labels or annotations")
	}
	before, err := specFields(p.before)
	if err != nil {
		return nil, err
	}
	after, err := specFields(object)
	if err != nil {
		return nil, err
	}
	operations := []jsonPatchOperation{{"replace", "/metadata/resourceVersion", p.before.ResourceVersion}}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !bytes.Equal(before[name], after[name]) {
			operations = append(operations, jsonPatchOperation{"add", "/spec/" + name, after[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, found := after[name]; !found {
			operations = append(operations, jsonPatchOperation{"remove", "/spec/" + name, nil})
		}
	}
	return json.Marshal(operations)
}

func specFields(object client.Object) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields struct{ Spec map[string]json.RawMessage }
	err = json.Unmarshal(data, &fields)
	return fields.Spec, err
}
