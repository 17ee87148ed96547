package apiserver

import (
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (k *kind) decode(o client.Object) (*metav1.ObjectMeta, map[string]any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return k.split(runtime.DeepCopyJSON(u.Object))
	}
	shallow := k.shallowCopy(o)
	meta := metaOf(shallow).DeepCopy()
	*metaOf(shallow) = metav1.ObjectMeta{}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shallow)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s %s: %w", k.gvk.Kind, client.ObjectKeyFromObject(o), err)
	}
	dropHead(body)
	return meta, body, nil
}

func (k *kind) split(content map[string]any) (*metav1.ObjectMeta, map[string]any, error) {
	meta, err := decodeMeta(content["metadata"])
	if err != nil {
		return nil, nil, err
	}
	dropHead(content)
	return meta, content, nil
}

func decodeMeta(from any) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	if from == nil {
		return meta, nil
	}
	content, ok := from.(map[string]any)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata is a %T, not an object", from))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, meta); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decode metadata: %v", err))
	}
	return meta, nil
}

func encodeMeta(meta *metav1.ObjectMeta) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(meta)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of %s: %w", meta.Name, err)
	}
	return content, nil
}

func dropHead(content map[string]any) {
	delete(content, "apiVersion")
	delete(content, "kind")
	delete(content, "metadata")
}

func (k *kind) build(r, old *record, meta metav1.ObjectMeta, body map[string]any) error {
	changed := body
	if old == nil {
		r.object = k.empty()
		r.object.GetObjectKind().SetGroupVersionKind(k.gvk)
	} else {
		r.object = k.shallowCopy(old.object)
		changed = map[string]any{}
		for name, value := range body {
			if !sameJSON(value, old.body[name]) {
				changed[name] = value
			}
		}
	}
	r.meta = metaOf(r.object)
	*r.meta = meta
	if c, ok := r.object.(*Custom); ok {
		r.body, c.Content = body, body
		return nil
	}
	target := reflect.ValueOf(r.object).Elem()
	for name, i := range k.fields {
		if _, ok := body[name]; !ok {
			target.Field(i).SetZero()
		}
	}
	if len(changed) > 0 {
		part := k.empty()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(changed, part); err != nil {
			return invalidPatchResult(k, r.key.Name, err)
		}
		source := reflect.ValueOf(part).Elem()
		for name := range changed {
			if i, ok := k.fields[name]; ok {
				target.Field(i).Set(source.Field(i))
			}
		}
	}
	r.body = body
	if !k.strategy.custom() {
		return k.canonicalize(r, old)
	}
	return nil
}

func invalidPatchResult(k *kind, name string, err error) error {
	return apierrors.NewInvalid(k.gvk.GroupKind(), name,
		field.ErrorList{field.Invalid(field.NewPath("patch"), name, err.Error())})
}

// canonicalize re-encodes the JSON of a built-in kind from its Go value, because the server stores this form. Unknown
// fields disappear, and numbers and times become canonical.
func (k *kind) canonicalize(r, old *record) error {
	shallow := k.shallowCopy(r.object)
	*metaOf(shallow) = metav1.ObjectMeta{}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shallow)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", k.gvk.Kind, r.key, err)
	}
	dropHead(body)
	r.body = body
	if old == nil {
		return nil
	}
	for name, value := range body {
		if before, ok := old.body[name]; ok && sameJSON(before, value) {
			body[name] = before
		}
	}
	return nil
}
