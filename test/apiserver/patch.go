package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type sentPatch struct {
	kind    types.PatchType
	data    []byte
	content map[string]any
}

func (s *Server) patch(k *kind, req request, key client.ObjectKey, p sentPatch) (*record, error) {
	if !k.namespaced {
		key.Namespace = ""
	}
	// Since Kubernetes 1.37, the API server checks that a patch is valid JSON before it reads the object.
	if p.content == nil && !json.Valid(p.data) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	old := s.get(k, key)
	if old == nil {
		return nil, apierrors.NewNotFound(k.resource(), key.Name)
	}
	meta, body, err := k.patched(old, p)
	if err != nil {
		return nil, err
	}
	if meta.Name != key.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			meta.Name, key.Name))
	}
	if meta.Namespace != key.Namespace {
		return nil,
			apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the URL (%s)",
				meta.Namespace, key.Namespace))
	}
	return s.update(k, req, old, meta, body, old.managed)
}

// patched applies a patch to a stored object and returns the new metadata and content. The returned content shares
// unchanged maps and lists with the stored object.
func (k *kind) patched(old *record, p sentPatch) (*metav1.ObjectMeta, map[string]any, error) {
	switch p.kind {
	case types.MergePatchType:
		if p.content != nil {
			return k.mergePatched(old, p.content)
		}
		content, err := decodePatch(p.data)
		if err != nil {
			return nil, nil, err
		}
		return k.mergePatched(old, content)
	case types.JSONPatchType:
		return k.jsonPatched(old, p.data)
	case types.StrategicMergePatchType:
		if k.strategy.custom() {
			break
		}
		return k.strategicallyPatched(old, p.data)
	}
	return nil, nil, apierrors.NewGenericServerResponse(415, "patch", k.resource(), old.key.Name,
		fmt.Sprintf("the body of the request was in an unknown format: %s", p.kind), 0, false)
}

func decodePatch(data []byte) (map[string]any, error) {
	var patch map[string]any
	if err := utiljson.Unmarshal(data, &patch); err != nil {
		return nil, invalidPatch(err)
	}
	return patch, nil
}

func invalidPatch(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

func (k *kind) mergePatched(old *record, patch map[string]any) (*metav1.ObjectMeta, map[string]any, error) {
	meta := *old.meta
	if metadata, ok := patch["metadata"].(map[string]any); ok {
		// Most patches contain no metadata except a resource version. This case is optimized.
		if version, ok := metadata["resourceVersion"].(string); ok && len(metadata) == 1 {
			meta.ResourceVersion = version
		} else {
			content, err := encodeMeta(old.meta)
			if err != nil {
				return nil, nil, err
			}
			merged, err := decodeMeta(merge(content, metadata))
			if err != nil {
				return nil, nil, err
			}
			meta = *merged
		}
	}
	dropHead(patch)
	return &meta, merge(old.body, patch), nil
}

// merge applies a JSON merge patch without changing its arguments. If nothing changes, the result is the old map.
func merge(old, patch map[string]any) map[string]any {
	var changed map[string]any
	set := func() map[string]any {
		if changed == nil {
			if changed = maps.Clone(old); changed == nil {
				changed = map[string]any{}
			}
		}
		return changed
	}
	if old == nil {
		set()
	}
	for name, value := range patch {
		current, present := old[name]
		switch value := value.(type) {
		case nil:
			if present {
				delete(set(), name)
			}
		case map[string]any:
			nested, _ := current.(map[string]any)
			if merged := merge(nested, value); nested == nil || !identical(merged, nested) {
				set()[name] = merged
			}
		default:
			if !present || !sameJSON(current, value) {
				set()[name] = value
			}
		}
	}
	if changed == nil {
		return old
	}
	return changed
}

func identical(a, b map[string]any) bool {
	return len(a) == len(b) && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if identical(a, b) {
			return true
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !sameJSON(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if len(a) == 0 || &a[0] == &b[0] {
			return true
		}
		for i, value := range a {
			if !sameJSON(value, b[i]) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func (k *kind) jsonPatched(old *record, data []byte) (*metav1.ObjectMeta, map[string]any, error) {
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, nil, invalidPatch(err)
	}
	content, err := old.content(k)
	if err != nil {
		return nil, nil, err
	}
	before, err := json.Marshal(content)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s %s: %w", k.gvk.Kind, old.key, err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, nil, apierrors.NewGenericServerResponse(422, "patch", k.resource(), old.key.Name, err.Error(), 0, false)
	}
	var patched map[string]any
	if err := utiljson.Unmarshal(after, &patched); err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("decode the patched object: %v", err))
	}
	return k.split(patched)
}

func (k *kind) strategicallyPatched(old *record, data []byte) (*metav1.ObjectMeta, map[string]any, error) {
	patch, err := decodePatch(data)
	if err != nil {
		return nil, nil, err
	}
	content, err := old.content(k)
	if err != nil {
		return nil, nil, err
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(content, patch, k.empty())
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	return k.split(patched)
}
