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

// strategy is what is particular to a kind.
type strategy interface {
	// custom says whether the kind is defined by a CustomResourceDefinition.
	custom() bool
	// unconditionally says whether an update need not name a resource version.
	unconditionally() bool
	// upserts says whether an update makes an object that is not there.
	upserts() bool
	// create prepares a new object: what a creation cannot set is dropped, what it left out has its default. It may
	// change both arguments and returns the content.
	create(now metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any, field.ErrorList)
	// update prepares the next state of an object, for a write to it or to one of its subresources. It must not change
	// the maps below body. Metadata returned as old.meta itself did not change.
	update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta, body map[string]any) (*metav1.ObjectMeta,
		map[string]any, field.ErrorList)
	// grace returns for how many seconds an object lives on that is deleted with this grace, false if the kind has none.
	grace(o client.Object, wanted *int64) (int64, bool)
	// fields are what field selectors can select by beside name and namespace.
	fields(o client.Object) fields.Set
	// has says whether the kind has a subresource that is written like the object.
	has(sub string) bool
	// scales says whether the kind has the scale subresource.
	scales() bool
}

// plainStrategy is the one of kinds without status and generation.
type plainStrategy struct{}

func (plainStrategy) custom() bool                              { return false }
func (plainStrategy) unconditionally() bool                     { return false }
func (plainStrategy) upserts() bool                             { return false }
func (plainStrategy) grace(client.Object, *int64) (int64, bool) { return 0, false }
func (plainStrategy) fields(client.Object) fields.Set           { return nil }
func (plainStrategy) scales() bool                              { return false }
func (plainStrategy) has(string) bool                           { return false }

func (plainStrategy) create(_ metav1.Time, _ *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	return body, nil
}

func (plainStrategy) update(_ metav1.Time, _ string, _ *record, meta *metav1.ObjectMeta,
	body map[string]any) (*metav1.ObjectMeta, map[string]any, field.ErrorList) {
	return meta, body, nil
}

// customStrategy is the one of a CustomResourceDefinition with a status subresource.
type customStrategy struct {
	plainStrategy
	schema *crd.Schema
	scale  bool
}

func newCustomStrategy(definition *apiextensionsv1.CustomResourceDefinition) customStrategy {
	version := definition.Spec.Versions[0]
	return customStrategy{schema: crd.Compile(version.Schema.OpenAPIV3Schema), scale: version.Subresources.Scale != nil}
}

func (customStrategy) custom() bool { return true }

func (c customStrategy) scales() bool { return c.scale }

func (customStrategy) has(sub string) bool { return sub == "status" }

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

// withField returns a copy of body in which one field is that of another object. The copy is body itself if they
// share it.
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
