package apiserver

import (
	"encoding/base64"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// contentStrategy is the one of ConfigMaps, whose content may be frozen.
type contentStrategy struct{ plainStrategy }

func (contentStrategy) unconditionally() bool { return true }

func (contentStrategy) update(_ metav1.Time, _ string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	return meta, body, frozen(old, body)
}

func frozen(old *record, body map[string]any) (errs field.ErrorList) {
	if old.body["immutable"] != true {
		return nil
	}
	for _, name := range []string{"immutable", "data", "binaryData"} {
		if !sameJSON(old.body[name], body[name]) {
			errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

// secretStrategy adds the type of a Secret, which never changes, and its stringData.
type secretStrategy struct{ contentStrategy }

func (secretStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	body = folded(body)
	if textAt(body, "type") == "" {
		body["type"] = string(corev1.SecretTypeOpaque)
	}
	return body, nil
}

func (secretStrategy) update(_ metav1.Time, _ string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	body = folded(body)
	if textAt(body, "type") == "" {
		body = withField(body, "type", old.body)
	}
	errs := frozen(old, body)
	if !sameJSON(body["type"], old.body["type"]) {
		errs = append(errs, field.Invalid(field.NewPath("type"), body["type"], "field is immutable"))
	}
	return meta, body, errs
}

// folded returns the content with stringData put into data.
func folded(body map[string]any) map[string]any {
	texts, ok := body["stringData"]
	if !ok {
		return body
	}
	body = maps.Clone(body)
	delete(body, "stringData")
	old, _ := body["data"].(map[string]any)
	data := maps.Clone(old)
	if data == nil {
		data = map[string]any{}
	}
	more, _ := texts.(map[string]any)
	for name, text := range more {
		if text, ok := text.(string); ok {
			data[name] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	body["data"] = data
	return body
}
