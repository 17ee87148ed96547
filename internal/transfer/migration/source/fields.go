package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// Codes of findings that are the same for all systems.
const (
	// CodeUnknownField: the old object has a field that is not known here.
	CodeUnknownField = "UnknownField"
	// CodeWrongType: a field has a value of another type than the old system's.
	CodeWrongType = "WrongType"
	// CodeMissingField: a field without which the object means nothing is not there.
	CodeMissingField = "MissingField"
	// CodeNotSupported: Machinist has no counterpart of the field.
	CodeNotSupported = "NotSupported"
	// CodeInvalidValue: a field has a value that means nothing.
	CodeInvalidValue = "InvalidValue"
)

// fields reads the fields of one JSON object and knows which ones nobody has read: those are losses by their paths.
type fields struct {
	object   map[string]any
	path     string
	read     map[string]bool
	children []*fields
	findings *[]provider.Finding
}

// newFields reads object. Findings are added to findings; path is prefixed to theirs.
func newFields(object map[string]any, path string, findings *[]provider.Finding) *fields {
	return &fields{object: object, path: path, read: map[string]bool{}, findings: findings}
}

// at returns the path of a field, or that of the object for an empty name.
func (f *fields) at(name string) string {
	switch {
	case f.path == "":
		return name
	case name == "":
		return f.path
	}
	return f.path + "." + name
}

// find adds a finding about a field.
func (f *fields) find(level provider.FindingLevel, code, name, format string, args ...any) {
	*f.findings = append(*f.findings, provider.Finding{Level: level, Code: code, Path: f.at(name),
		Message: fmt.Sprintf(format, args...)})
}

// get returns a field, which counts as read from now on.
func (f *fields) get(name string) (value any, ok bool) {
	if f == nil {
		return nil, false
	}
	f.read[name] = true
	value, ok = f.object[name]
	return value, ok && value != nil
}

// typed returns a field of one type. One of another type is a Blocker and counts as missing.
func typed[T any](f *fields, name, want string) (value T, ok bool) {
	raw, ok := f.get(name)
	if !ok {
		return value, false
	}
	if value, ok = raw.(T); !ok {
		f.find(provider.FindingBlocker, CodeWrongType, name, "It must be %s, not %s.", want, typeOf(raw))
	}
	return value, ok
}

// text returns a string, empty where there is none.
func (f *fields) text(name string) string {
	value, _ := typed[string](f, name, "a string")
	return value
}

// flag returns a boolean, false where there is none.
func (f *fields) flag(name string) bool {
	value, _ := typed[bool](f, name, "true or false")
	return value
}

// number returns an integer of at most 32 bits, nil where there is none.
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
			f.find(provider.FindingBlocker, CodeWrongType, name, "It must be a whole number of at most 32 bits.")
			return nil
		}
		n = int64(value)
	default:
		f.find(provider.FindingBlocker, CodeWrongType, name, "It must be a number, not %s.", typeOf(raw))
		return nil
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		f.find(provider.FindingBlocker, CodeWrongType, name, "It must be a whole number of at most 32 bits.")
		return nil
	}
	short := int32(n) //nolint:gosec // checked above
	return &short
}

// duration returns a duration such as 20m, nil where there is none.
func (f *fields) duration(name string) *time.Duration {
	text := f.text(name)
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		f.find(provider.FindingBlocker, CodeWrongType, name, "Its value %.40q is no duration such as 20m.", text)
		return nil
	}
	return &d
}

// child returns an object to read; one without fields where there is none. What nobody reads of it is found as well.
func (f *fields) child(name string) *fields {
	value, _ := typed[map[string]any](f, name, "an object")
	return f.add(value, f.at(name))
}

// peek returns an object to read ahead of time: nothing of it counts as read, and nothing is found.
func (f *fields) peek(name string) *fields {
	object, _ := f.object[name].(map[string]any)
	return newFields(object, f.at(name), new([]provider.Finding))
}

// strings returns the fields that are strings, such as labels.
func (f *fields) strings() map[string]string {
	all := map[string]string{}
	for name, value := range f.object {
		if text, ok := value.(string); ok {
			all[name] = text
		}
	}
	return all
}

// observe returns an object that the old system wrote, such as status. A field that nobody reads is no finding, nor is
// one of another type: nothing of the object comes over.
func (f *fields) observe(name string) *fields {
	f.ignore(name)
	return f.peek(name)
}

func (f *fields) add(object map[string]any, path string) *fields {
	child := newFields(object, path, f.findings)
	f.children = append(f.children, child)
	return child
}

// each returns the objects of a list to read.
func (f *fields) each(name string) (all []*fields) {
	list, _ := typed[[]any](f, name, "a list")
	for i, item := range list {
		path := name + "[" + strconv.Itoa(i) + "]"
		object, ok := item.(map[string]any)
		if !ok {
			f.find(provider.FindingBlocker, CodeWrongType, path, "It must be an object, not %s.", typeOf(item))
			continue
		}
		all = append(all, f.add(object, f.at(path)))
	}
	return all
}

// texts returns a list of strings.
func (f *fields) texts(name string) (all []string) {
	list, _ := typed[[]any](f, name, "a list")
	for i, item := range list {
		text, ok := item.(string)
		if !ok {
			f.find(provider.FindingBlocker, CodeWrongType, name+"["+strconv.Itoa(i)+"]", "It must be a string, not %s.",
				typeOf(item))
			continue
		}
		all = append(all, text)
	}
	return all
}

// textMap returns a map of strings.
func (f *fields) textMap(name string) map[string]string {
	object, ok := typed[map[string]any](f, name, "an object")
	if !ok {
		return nil
	}
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		text, ok := object[key].(string)
		if !ok {
			f.find(provider.FindingBlocker, CodeWrongType, name+"."+key, "It must be a string, not %s.", typeOf(object[key]))
			continue
		}
		all[key] = text
	}
	return all
}

// into decodes a field whose form is Kubernetes' own, such as a list of taints. ok is false where there is none.
func (f *fields) into(name string, target any) (ok bool) {
	raw, ok := f.get(name)
	if !ok {
		return false
	}
	data, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(data, target)
	}
	if err != nil {
		// Not the error: it quotes the value.
		f.find(provider.FindingBlocker, CodeWrongType, name, "It cannot be read as what it is in Kubernetes.")
		return false
	}
	return true
}

// ignore names fields that mean nothing for the migration, such as status.
func (f *fields) ignore(names ...string) {
	for _, name := range names {
		f.read[name] = true
	}
}

// ignoreAll is for an object that is reported as a whole.
func (f *fields) ignoreAll() {
	for name := range f.object {
		f.read[name] = true
	}
	f.children = nil
}

// loses reports fields that Machinist has no counterpart of, where they are set.
func (f *fields) loses(why string, names ...string) {
	for _, name := range names {
		if value, ok := f.get(name); ok && !empty(value) {
			f.find(provider.FindingLoss, CodeNotSupported, name, "%s", why)
		}
	}
}

// done reports every field that nobody has read, of the object and of those in it.
func (f *fields) done() {
	for _, name := range slices.Sorted(maps.Keys(f.object)) {
		if !f.read[name] {
			f.find(provider.FindingLoss, CodeUnknownField, name, "This field is not known; it does not come over.")
		}
	}
	for _, child := range f.children {
		child.done()
	}
}

func empty(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case bool:
		return !v
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
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
