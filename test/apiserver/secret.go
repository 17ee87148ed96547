package apiserver

import (
	"encoding/base64"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type configMapStrategy struct{ baseStrategy }

func (configMapStrategy) allowsUnconditionalUpdate() bool { return true }

func (configMapStrategy) update(_ metav1.Time, _ string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	return meta, body, checkImmutable(old, body)
}

func checkImmutable(old *record, body map[string]any) (errs field.ErrorList) {
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

// secretStrategy makes the type of a Secret immutable, and supports stringData.
type secretStrategy struct{ configMapStrategy }

func (secretStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	body = mergeStringData(body)
	if textAt(body, "type") == "" {
		body["type"] = string(corev1.SecretTypeOpaque)
	}
	return body, nil
}

func (secretStrategy) update(_ metav1.Time, _ string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	body = mergeStringData(body)
	if textAt(body, "type") == "" {
		body = withField(body, "type", old.body)
	}
	errs := checkImmutable(old, body)
	if !sameJSON(body["type"], old.body["type"]) {
		errs = append(errs, field.Invalid(field.NewPath("type"), body["type"], "field is immutable"))
	}
	return meta, body, errs
}

func mergeStringData(body map[string]any) map[string]any {
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
	entries, _ := texts.(map[string]any)
	for name, text := range entries {
		if text, ok := text.(string); ok {
			data[name] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	body["data"] = data
	return body
}
