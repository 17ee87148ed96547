package crd

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

type admission struct {
	path []string
	errs field.ErrorList
	// changedValues contains the values that the write changes and whose schema has rules. The rules of these values
	// run only if the object matches the schema.
	changedValues []changedValue
}

type changedValue struct {
	node       *node
	path       string
	value, old any
}

// value returns the stored form of value: with defaults, and without unknown fields. Parts that are identical in the
// old value are skipped, because they are already valid.
func (a *admission) value(n *node, value, old any) any {
	if isSameValue(value, old) {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		if n.kind != "object" {
			a.wrongType(n, value)
			return value
		}
		value = a.object(n, v, old)
	case []any:
		if n.kind != "array" {
			a.wrongType(n, value)
			return value
		}
		value = a.array(n, v, old)
	case nil:
		if !n.nullable {
			a.wrongType(n, value)
		}
		return value
	default:
		if value == old {
			return value
		}
		a.scalar(n, value)
	}
	if len(n.rules) > 0 {
		a.changedValues = append(a.changedValues, changedValue{n, strings.Join(a.path, "."), value, old})
	}
	return value
}

func (a *admission) object(n *node, content map[string]any, old any) map[string]any {
	before, _ := old.(map[string]any)
	changed := false
	set := func() map[string]any {
		if !changed {
			changed = true
			content = maps.Clone(content)
		}
		return content
	}
	for name, value := range content {
		child := n.properties[name]
		if child == nil {
			child = n.additional
		}
		if child == nil {
			if !n.preserveUnknown {
				delete(set(), name)
			}
			continue
		}
		if value == nil && !child.nullable {
			delete(set(), name)
			continue
		}
		a.path = append(a.path, name)
		admitted := a.value(child, value, before[name])
		a.path = a.path[:len(a.path)-1]
		if isComposite(value) && !isSameValue(admitted, value) {
			set()[name] = admitted
		}
	}
	for _, d := range n.defaults {
		if _, ok := content[d.name]; ok {
			continue
		}
		a.path = append(a.path, d.name)
		set()[d.name] = a.value(n.properties[d.name], d.value, before[d.name])
		a.path = a.path[:len(a.path)-1]
	}
	for _, name := range n.required {
		if _, ok := content[name]; !ok {
			a.add(field.Required, name, "")
		}
	}
	if n.maxProperties != nil && int64(len(content)) > *n.maxProperties {
		a.errs = append(a.errs, field.TooMany(a.fieldPath(), len(content), int(*n.maxProperties)))
	}
	if n.minProperties != nil && int64(len(content)) < *n.minProperties {
		a.invalid(content, fmt.Sprintf("should have at least %d properties", *n.minProperties))
	}
	return content
}

func (a *admission) array(n *node, items []any, old any) []any {
	before, _ := old.([]any)
	changed := false
	for i, item := range items {
		a.path = append(a.path, fmt.Sprintf("[%d]", i))
		admitted := a.value(n.items, item, n.counterpart(item, before))
		a.path = a.path[:len(a.path)-1]
		if isComposite(item) && !isSameValue(admitted, item) {
			if !changed {
				changed = true
				items = slices.Clone(items)
			}
			items[i] = admitted
		}
	}
	if n.maxItems != nil && int64(len(items)) > *n.maxItems {
		a.errs = append(a.errs, field.TooMany(a.fieldPath(), len(items), int(*n.maxItems)))
	}
	if n.minItems != nil && int64(len(items)) < *n.minItems {
		a.invalid(items, fmt.Sprintf("should have at least %d items", *n.minItems))
	}
	if n.unique {
		for i := range items {
			for j := range i {
				if n.duplicates(items[i], items[j]) {
					a.errs = append(a.errs, field.Duplicate(a.fieldPath().Index(i), items[i]))
				}
			}
		}
	}
	return items
}

func (n *node) counterpart(item any, before []any) any {
	if n.mapKeys == nil {
		return nil
	}
	for _, b := range before {
		if n.duplicates(item, b) {
			return b
		}
	}
	return nil
}

func (n *node) duplicates(a, b any) bool {
	if n.mapKeys == nil {
		return a == b
	}
	x, ok := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok || !ok2 {
		return false
	}
	for _, key := range n.mapKeys {
		if x[key] != y[key] {
			return false
		}
	}
	return true
}

func (a *admission) scalar(n *node, value any) {
	switch v := value.(type) {
	case string:
		if n.kind != "string" && n.kind != intOrString {
			a.wrongType(n, value)
			return
		}
		if n.maxLength != nil && int64(len(v)) > *n.maxLength && int64(utf8.RuneCountInString(v)) > *n.maxLength {
			a.errs = append(a.errs, field.TooLong(a.fieldPath(), v, int(*n.maxLength)))
		}
		if n.minLength != nil && int64(utf8.RuneCountInString(v)) < *n.minLength {
			a.invalid(v, fmt.Sprintf("should be at least %d chars long", *n.minLength))
		}
		if n.pattern != nil && !n.pattern.MatchString(v) {
			a.invalid(v, fmt.Sprintf("should match '%s'", n.pattern))
		}
	case int64:
		if n.kind != "integer" && n.kind != "number" && n.kind != intOrString {
			a.wrongType(n, value)
			return
		}
		if n.format == "int32" && (v > math.MaxInt32 || v < math.MinInt32) {
			a.invalid(v, "must be an integer of 32 bits")
		}
		a.bounds(n, float64(v))
	case float64:
		if n.kind == "number" || v == math.Trunc(v) && (n.kind == "integer" || n.kind == intOrString) {
			a.bounds(n, v)
		} else {
			a.wrongType(n, value)
			return
		}
	case bool:
		if n.kind != "boolean" {
			a.wrongType(n, value)
			return
		}
	}
	if n.enum != nil && !slices.Contains(n.enum, value) {
		a.errs = append(a.errs, field.NotSupported(a.fieldPath(), value, n.enumNames()))
	}
}

func (n *node) enumNames() []string {
	names := make([]string, len(n.enum))
	for i, e := range n.enum {
		names[i] = fmt.Sprint(e)
	}
	return names
}

func (a *admission) bounds(n *node, v float64) {
	if n.minimum != nil && v < *n.minimum {
		a.invalid(v, fmt.Sprintf("should be greater than or equal to %v", *n.minimum))
	}
	if n.maximum != nil && v > *n.maximum {
		a.invalid(v, fmt.Sprintf("should be less than or equal to %v", *n.maximum))
	}
}

func isComposite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func (a *admission) fieldPath() *field.Path { return pathOf(a.path) }

func pathOf(names []string) *field.Path {
	var p *field.Path
	for _, name := range names {
		switch {
		case p == nil:
			p = field.NewPath(name)
		default:
			p = p.Child(name)
		}
	}
	return p
}

func pathAt(path string) *field.Path {
	if path == "" {
		return nil
	}
	return field.NewPath(path)
}

func (a *admission) invalid(value any, detail string) {
	a.errs = append(a.errs, field.Invalid(a.fieldPath(), value, detail))
}

func (a *admission) add(newError func(*field.Path, string) *field.Error, name, detail string) {
	a.errs = append(a.errs, newError(pathOf(append(slices.Clone(a.path), name)), detail))
}

func (a *admission) wrongType(n *node, value any) {
	a.errs = append(a.errs, field.TypeInvalid(a.fieldPath(), value, fmt.Sprintf("must be of type %s", n.kind)))
}
