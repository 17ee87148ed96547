package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeUnknownField: an old object has a field that this version of Machinist does not know.
	CodeUnknownField = "UnknownField"
	// CodeWrongType: the value of a field does not have the type in the old API.
	CodeWrongType = "WrongType"
	// CodeMissingField: a required field is missing.
	CodeMissingField = "MissingField"
	// CodeNotSupported: Machinist has no counterpart for the field.
	CodeNotSupported = "NotSupported"
	// CodeInvalidValue: the value of a field is invalid.
	CodeInvalidValue = "InvalidValue"
)

// fields reads the fields of one JSON object and records which fields were read. reportUnread reports all other
// fields.
type fields struct {
	object   map[string]any
	path     string
	read     map[string]bool
	children []*fields
	findings *[]provider.Finding
}

// newFields wraps an object so that its fields can be read and checked. Problems are appended to findings. The paths of
// all findings start with the given path.
func newFields(object map[string]any, path string, findings *[]provider.Finding) *fields {
	return &fields{object: object, path: path, read: map[string]bool{}, findings: findings}
}

func (f *fields) pathOf(name string) string {
	switch {
	case f.path == "":
		return name
	case name == "":
		return f.path
	}
	return f.path + "." + name
}

func (f *fields) report(level provider.FindingLevel, code, name, format string, args ...any) {
	*f.findings = append(*f.findings, provider.Finding{Level: level, Code: code, Path: f.pathOf(name),
		Message: fmt.Sprintf(format, args...)})
}

func (f *fields) get(name string) (value any, ok bool) {
	if f == nil {
		return nil, false
	}
	key := f.key(name)
	f.read[key] = true
	value, ok = f.object[key]
	return value, ok && value != nil
}

// has reports whether the object has the field, even if it is null. The method does not mark the field as read.
func (f *fields) has(name string) bool {
	_, found := f.object[f.key(name)]
	return found
}

// key returns the name of a field as it is written in the old object. The old systems decode their descriptions with
// Go's decoder, which ignores the case of names unless a field has exactly the wanted name.
func (f *fields) key(name string) string {
	if _, exact := f.object[name]; exact {
		return name
	}
	for _, key := range slices.Sorted(maps.Keys(f.object)) {
		if strings.EqualFold(key, name) {
			return key
		}
	}
	return name
}

// fieldAs returns the value of a field if it has the type T. A value of another type causes a Blocker and counts as
// missing.
func fieldAs[T any](f *fields, name, want string) (value T, ok bool) {
	raw, ok := f.get(name)
	if !ok {
		return value, false
	}
	if value, ok = raw.(T); !ok {
		f.report(provider.FindingBlocker, CodeWrongType, name, "The value must be %s, not %s.", want, typeOf(raw))
	}
	return value, ok
}

func (f *fields) text(name string) string {
	value, _ := fieldAs[string](f, name, "a string")
	return value
}

func (f *fields) boolean(name string) bool {
	value, _ := fieldAs[bool](f, name, "true or false")
	return value
}

// number returns an integer of at most 32 bits, or nil if the field is missing.
func (f *fields) number(name string) *int32 {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	var n int64
	switch value := raw.(type) {
	case int64:
		n = value
	case float64:
		if value != math.Trunc(value) || math.Abs(value) > math.MaxInt32 {
			f.report(provider.FindingBlocker, CodeWrongType, name, "The value must be a whole number of at most 32 bits.")
			return nil
		}
		n = int64(value)
	default:
		f.report(provider.FindingBlocker, CodeWrongType, name, "The value must be a number, not %s.", typeOf(raw))
		return nil
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		f.report(provider.FindingBlocker, CodeWrongType, name, "The value must be a whole number of at most 32 bits.")
		return nil
	}
	short := int32(n) //nolint:gosec // checked above
	return &short
}

// duration returns the value of a field such as 20m, or nil if the field is missing.
func (f *fields) duration(name string) *time.Duration {
	text := f.text(name)
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		f.report(provider.FindingBlocker, CodeWrongType, name, "The value %.40q is not a duration such as 20m.", text)
		return nil
	}
	return &d
}

// child returns the fields of a nested object, which may be missing. A later call of reportUnread for the outer object
// also covers the nested object.
func (f *fields) child(name string) *fields {
	value, _ := fieldAs[map[string]any](f, name, "an object")
	return f.addChild(value, f.pathOf(name))
}

// peek returns the fields of a nested object without marking the nested object or its fields as read. Problems in the
// fields are not reported. Callers that need these reports must also call child for the nested object.
func (f *fields) peek(name string) *fields {
	object, _ := f.object[f.key(name)].(map[string]any)
	return newFields(object, f.pathOf(name), new([]provider.Finding))
}

func (f *fields) stringFields() map[string]string {
	all := map[string]string{}
	for name, value := range f.object {
		if text, ok := value.(string); ok {
			all[name] = text
		}
	}
	return all
}

// observe returns the fields of an object that the old system writes, such as the status. Such an object is not
// migrated. Therefore fields that are not read and fields of a wrong type are not reported.
func (f *fields) observe(name string) *fields {
	f.ignore(name)
	return f.peek(name)
}

func (f *fields) addChild(object map[string]any, path string) *fields {
	child := newFields(object, path, f.findings)
	f.children = append(f.children, child)
	return child
}

func (f *fields) objects(name string) (all []*fields) {
	list, _ := fieldAs[[]any](f, name, "a list")
	for i, item := range list {
		path := name + "[" + strconv.Itoa(i) + "]"
		object, ok := item.(map[string]any)
		if !ok {
			f.report(provider.FindingBlocker, CodeWrongType, path, "The value must be an object, not %s.", typeOf(item))
			continue
		}
		all = append(all, f.addChild(object, f.pathOf(path)))
	}
	return all
}

func (f *fields) texts(name string) (all []string) {
	list, _ := fieldAs[[]any](f, name, "a list")
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			f.report(provider.FindingBlocker, CodeWrongType, name+"["+strconv.Itoa(i)+"]", "The value must be a string, not "+
				"%s.", typeOf(item))
			continue
		}
		all = append(all, text)
	}
	return all
}

func (f *fields) textMap(name string) map[string]string {
	object, ok := fieldAs[map[string]any](f, name, "an object")
	if !ok {
		return nil
	}
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		text, ok := object[key].(string)
		if !ok {
			f.report(provider.FindingBlocker, CodeWrongType, name+"."+key, "The value must be a string, not %s.",
				typeOf(object[key]))
			continue
		}
		all[key] = text
	}
	return all
}

// decode decodes a field of a Kubernetes type, such as a list of taints. ok is false if the field is missing or
// invalid.
func (f *fields) decode(name string, target any) (ok bool) {
	raw, ok := f.get(name)
	if !ok {
		return false
	}
	data, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(data, target)
	}
	if err != nil {
		// The decoder's error message would quote the value.
		f.report(provider.FindingBlocker, CodeWrongType, name, "The value does not have the form that Kubernetes defines.")
		return false
	}
	return true
}

func (f *fields) ignore(names ...string) {
	for _, name := range names {
		f.read[f.key(name)] = true
	}
}

// ignoreAll prevents that reportUnread reports any field of the object. Use it if one finding covers the whole object.
func (f *fields) ignoreAll() {
	for name := range f.object {
		f.read[name] = true
	}
	f.children = nil
}

func (f *fields) reportLoss(why string, names ...string) {
	for _, name := range names {
		if value, ok := f.get(name); ok && value != false && !empty(value) {
			f.report(provider.FindingLoss, CodeNotSupported, name, "%s", why)
		}
	}
}

// reportUnread reports each unread field of the object and its children.
func (f *fields) reportUnread() {
	for _, name := range slices.Sorted(maps.Keys(f.object)) {
		if !f.read[name] && !empty(f.object[name]) {
			f.report(provider.FindingLoss, CodeUnknownField, name, "This field is unknown and is not migrated.")
		}
	}
	for _, child := range f.children {
		child.reportUnread()
	}
}

// empty reports whether a value is null, an empty string, or a list or object with only empty values. Old systems
// often write empty fields, which have no effect.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(value any) bool { return !empty(value) })
	case []any:
		return !slices.ContainsFunc(v, func(value any) bool { return !empty(value) })
	}
	return false
}

// fieldsWithPresence are fields whose presence has a meaning, even if they are empty. They ask for spot instances.
var fieldsWithPresence = []string{"spotVMOptions", "spotMarketOptions"}

// withoutEmpty returns a copy of a value without the empty fields of its objects.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for key, field := range v {
			isSame := func(name string) bool { return strings.EqualFold(name, key) }
			hasPresence := slices.ContainsFunc(fieldsWithPresence, isSame)
			if !empty(field) || field != nil && hasPresence {
				object[key] = withoutEmpty(field)
			}
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = withoutEmpty(item)
		}
		return list
	}
	return value
}

func typeOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%T", value)
}
