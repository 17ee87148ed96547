package apiserver

import (
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/apiserver/crd"
)

type strategy interface {
	custom() bool
	allowsUnconditionalUpdate() bool
	allowsCreateOnUpdate() bool
	// create prepares a new object: it removes fields that a creation cannot set, and sets defaults. create may change
	// both arguments.
	create(now metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any, field.ErrorList)
	// update prepares the next state of an object and must not change the maps in body. If the metadata stays the same,
	// update may return old.meta.
	update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta, body map[string]any) (*metav1.ObjectMeta,
		map[string]any, field.ErrorList)
	// grace returns the grace period in seconds for the deletion of an object, or false if the kind has none. wanted is
	// the requested period.
	grace(o client.Object, wanted *int64) (int64, bool)
	fields(o client.Object) fields.Set
	hasSubresource(sub string) bool
	hasScale() bool
}

type baseStrategy struct{}

func (baseStrategy) custom() bool                              { return false }
func (baseStrategy) allowsUnconditionalUpdate() bool           { return false }
func (baseStrategy) allowsCreateOnUpdate() bool                { return false }
func (baseStrategy) grace(client.Object, *int64) (int64, bool) { return 0, false }
func (baseStrategy) fields(client.Object) fields.Set           { return nil }
func (baseStrategy) hasScale() bool                            { return false }
func (baseStrategy) hasSubresource(string) bool                { return false }

func (baseStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	return body, nil
}

func (baseStrategy) update(_ metav1.Time, _ string, _ *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	return meta, body, nil
}

type customStrategy struct {
	baseStrategy
	schema *crd.Schema
	scale  bool
}

func newCustomStrategy(definition *apiextensionsv1.CustomResourceDefinition) customStrategy {
	version := definition.Spec.Versions[0]
	return customStrategy{schema: crd.Compile(version.Schema.OpenAPIV3Schema), scale: version.Subresources.Scale != nil}
}

func (customStrategy) custom() bool { return true }

func (c customStrategy) hasScale() bool { return c.scale }

func (customStrategy) hasSubresource(sub string) bool { return sub == "status" }

func (c customStrategy) create(_ metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	delete(body, "status")
	meta.Generation = 1
	return c.schema.Admit(meta.Name, body, nil)
}

func (c customStrategy) update(_ metav1.Time, sub string, old *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	if sub == "status" {
		body, errs := c.schema.Admit(old.key.Name, withField(old.body, "status", body), old.body)
		return old.meta, body, errs
	}
	body, errs := c.schema.Admit(old.key.Name, withField(body, "status", old.body), old.body)
	if !sameJSON(body, old.body) {
		meta.Generation++
	}
	return meta, body, errs
}

// withField copies the named field from one object body to another, and returns the result as a new map. If the field
// is the same in both bodies, withField returns body without a copy.
func withField(body map[string]any, name string, from map[string]any) map[string]any {
	value, ok := from[name]
	if current, present := body[name]; present == ok && sameJSON(current, value) {
		return body
	}
	body = maps.Clone(body)
	if ok {
		body[name] = value
	} else {
		delete(body, name)
	}
	return body
}
