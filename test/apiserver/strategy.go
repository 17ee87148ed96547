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

// strategy implements the differences between kinds.
type strategy interface {
	// custom reports whether a CustomResourceDefinition defines the kind.
	custom() bool
	// allowsUnconditionalUpdate reports whether an update may omit the resource version.
	allowsUnconditionalUpdate() bool
	// allowsCreateOnUpdate reports whether an update creates an object that does not exist.
	allowsCreateOnUpdate() bool
	// create prepares a new object: it removes fields that a creation cannot set, and sets defaults. It may change both
	// arguments and returns the content.
	create(now metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any, field.ErrorList)
	// update prepares the next state of an object, for a write to the object or to the subresource. It must not change the
	// maps in body. If the metadata does not change, update may return old.meta itself.
	update(now metav1.Time, sub string, old *record, meta *metav1.ObjectMeta, body map[string]any) (*metav1.ObjectMeta,
		map[string]any, field.ErrorList)
	// grace returns the grace period in seconds for the deletion of an object. If the kind has no grace period, grace
	// returns false. wanted is the requested period.
	grace(o client.Object, wanted *int64) (int64, bool)
	// fields returns the fields that field selectors support in addition to the name and the namespace.
	fields(o client.Object) fields.Set
	// hasSubresource reports whether the kind has the given subresource. It is only for subresources that have the type of
	// the object, such as status.
	hasSubresource(sub string) bool
	// hasScale reports whether the kind has the scale subresource.
	hasScale() bool
}

// baseStrategy is the strategy of kinds without status and generation.
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

// customStrategy is the strategy of a CustomResourceDefinition with a status subresource.
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

// withField returns a copy of body in which the named field has the value from the map from. If this changes
// nothing, withField returns body itself.
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
