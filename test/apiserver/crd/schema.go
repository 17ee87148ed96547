// Package crd prepares a custom resource for storage as kube-apiserver does. The package prunes fields, sets defaults,
// and validates the object with the schema and the rules of a CustomResourceDefinition.
package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Schema is the compiled schema of a kind. A Schema is immutable.
type Schema struct {
	root *node
}

type node struct {
	kind string // type of the value: object, array, string, integer, number, boolean, or int-or-string
	// properties contains the schemas of the declared properties, and additional contains the schema of all other
	// properties. Unknown properties are pruned if additional is nil and preserveUnknown is false.
	properties      map[string]*node
	additional      *node
	preserveUnknown bool
	items           *node
	nullable        bool
	required        []string
	defaults        []defaultValue

	minimum, maximum             *float64
	minLength, maxLength         *int64
	minItems, maxItems           *int64
	minProperties, maxProperties *int64
	pattern                      *regexp.Regexp
	format                       string
	enum                         []any
	unique                       bool
	mapKeys                      []string
	rules                        []rule
}

type defaultValue struct {
	name  string
	value any
}

// Compile compiles a structural schema. Compile panics if the schema uses a feature that the CustomResourceDefinitions
// of this project do not use.
func Compile(schema *apiextensionsv1.JSONSchemaProps) *Schema {
	root := compile(schema)
	// Callers validate metadata, and remove apiVersion and kind.
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.properties, name)
	}
	root.rules = compileRules(schema, true)
	return &Schema{root: root}
}

func compile(s *apiextensionsv1.JSONSchemaProps) *node {
	n := &node{
		kind: s.Type, nullable: s.Nullable, required: s.Required,
		minimum: s.Minimum, maximum: s.Maximum, minLength: s.MinLength, maxLength: s.MaxLength,
		minItems: s.MinItems, maxItems: s.MaxItems, minProperties: s.MinProperties, maxProperties: s.MaxProperties,
		format:          s.Format,
		preserveUnknown: s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields,
	}
	if s.XIntOrString {
		n.kind = intOrString
	}
	if len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0 && !s.XIntOrString || s.Not != nil {
		panic("a schema uses allOf, anyOf, oneOf or not")
	}
	if s.Pattern != "" {
		n.pattern = regexp.MustCompile(s.Pattern)
	}
	for _, e := range s.Enum {
		n.enum = append(n.enum, mustDecode(e.Raw))
	}
	if s.XListType != nil && *s.XListType != "atomic" {
		n.unique, n.mapKeys = true, s.XListMapKeys
	}
	if s.Items != nil {
		n.items = compile(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		n.additional = compile(s.AdditionalProperties.Schema)
	}
	if len(s.Properties) > 0 {
		n.properties = make(map[string]*node, len(s.Properties))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		n.properties[name] = compile(&property)
		if property.Default != nil {
			n.defaults = append(n.defaults, defaultValue{name, mustDecode(property.Default.Raw)})
		}
	}
	n.rules = compileRules(s, false)
	return n
}

const intOrString = "int-or-string"

func mustDecode(raw json.RawMessage) any {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		panic(fmt.Sprintf("decode %s in a schema: %v", raw, err))
	}
	return value
}

// Admit returns the stored form of an object without apiVersion, kind and metadata, and the errors in the object. old
// is the previous content, or nil for a new object. Admit does not check maps and lists that are identical in old and
// content, because they are already valid. Admit does not change its arguments.
func (s *Schema) Admit(name string, content, old map[string]any) (map[string]any, field.ErrorList) {
	a := admission{path: make([]string, 0, 16)}
	var before any
	if old != nil {
		before = old
	}
	admitted := a.value(s.root, content, before).(map[string]any)
	if len(a.errs) == 0 {
		a.runRules(name)
	}
	slices.SortFunc(a.errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return admitted, a.errs
}

func (a *admission) runRules(name string) {
	for _, r := range a.changedValues {
		value, old := r.value, r.old
		if r.path == "" {
			value, old = withName(value, name), withName(old, name)
		}
		for _, rule := range r.node.rules {
			a.errs = append(a.errs, rule(pathAt(r.path), value, old)...)
		}
	}
}

// withName adds metadata with the name to the content of an object, because rules can read the name.
func withName(content any, name string) any {
	object, ok := content.(map[string]any)
	if !ok {
		return nil
	}
	object = maps.Clone(object)
	object["metadata"] = map[string]any{"name": name}
	return object
}

// isSameValue reports whether two values are the same map or list in memory.
func isSameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && len(a) == len(b) && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	return false
}
