// Package legacy reads the descriptions of old systems for provider.Importer. An Object remembers which of its fields
// were read, so that all others are reported:
//
//	old, err := legacy.Parse(req.Legacy.Spec)
//	spec.Region = old.Required("region")
//	spec.Disk = old.Object("disk").Int("sizeGiB")
//	old.Known("apiVersion", "kind")
//	return provider.Imported{Spec: …, Findings: old.Findings()}, nil
package legacy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// Object is one JSON object of an old description. The methods that read a field return the zero value where it is
// missing, null or, with a Blocker, of another type; a value may be wrapped as {"value": …}, as machine.k8s.io writes it.
type Object struct {
	path   string
	fields map[string]any
	// read has the fields that were read, and the objects in them that are read field by field.
	read map[string][]*Object
	// all are the findings of the whole description.
	all *[]provider.Finding
}

// Parse reads a description. It returns InvalidArgument for what is not one JSON object of at most
// provider.MaxSpecBytes.
func Parse(spec provider.Secret) (*Object, error) {
	raw := spec.Reveal()
	if len(raw) > provider.MaxSpecBytes {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description is %d bytes long, more than %d",
			len(raw), provider.MaxSpecBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var fields map[string]any
	// What the decoder says may quote a value.
	if decoder.Decode(&fields) != nil || fields == nil || len(bytes.TrimSpace(raw[decoder.InputOffset():])) > 0 {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description is not a JSON object")
	}
	return newObject("", fields, new([]provider.Finding)), nil
}

func newObject(path string, fields map[string]any, all *[]provider.Finding) *Object {
	return &Object{path: path, fields: fields, read: map[string][]*Object{}, all: all}
}

// Has reports whether the field is there and not null. It does not count as read by that.
func (o *Object) Has(name string) bool { return o.fields[name] != nil }

// Names are the fields that are there and not null, sorted.
func (o *Object) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(o.fields)), func(name string) bool { return o.fields[name] == nil })
}

// Path is that of a field of the object, from the top of the description.
func (o *Object) Path(name string) string {
	const most = 128 // Somebody may have made it up: it must not fill a condition's message.
	if o.path != "" {
		name = o.path + "." + name
	}
	if len(name) > most {
		name = name[:most] + "…"
	}
	return strings.ToValidUTF8(name, "�")
}

// Known marks fields as read: they mean nothing for the instance.
func (o *Object) Known(names ...string) {
	for _, name := range names {
		o.take(name)
	}
}

// String returns a text.
func (o *Object) String(name string) string {
	value := unwrapped(o.take(name))
	text, ok := value.(string)
	if value != nil && !ok {
		o.mistyped(name, "a text")
	}
	return text
}

// Required is String of a field without which there is no instance: missing or empty it is a Blocker.
func (o *Object) Required(name string) string {
	value := o.String(name)
	if value == "" && !reported(*o.all, o.Path(name)) {
		o.Report(provider.FindingBlocker, provider.FindingRequiredField, name, "is required; give it by an override")
	}
	return value
}

// Bool returns a truth value, also one that is written as the text "true" or "false", as in a ConfigMap.
func (o *Object) Bool(name string) bool {
	value := unwrapped(o.take(name))
	if text, ok := value.(string); ok && (text == "true" || text == "false") {
		return text == "true"
	}
	truth, ok := value.(bool)
	if value != nil && !ok {
		o.mistyped(name, "true or false")
	}
	return truth
}

// Int returns a whole number, also one that is written as a text.
func (o *Object) Int(name string) int64 {
	value := unwrapped(o.take(name))
	if value == nil {
		return 0
	}
	text := ""
	switch value := value.(type) {
	case json.Number:
		text = value.String()
	case string:
		text = value
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		o.mistyped(name, "a whole number")
		return 0
	}
	return number
}

// Number returns a number, also one that is written as a text, nil where there is none.
func (o *Object) Number(name string) *float64 {
	text := ""
	switch value := unwrapped(o.take(name)).(type) {
	case nil:
		return nil
	case json.Number:
		text = value.String()
	case string:
		text = value
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		o.mistyped(name, "a number")
		return nil
	}
	return &number
}

// Strings returns a list of texts.
func (o *Object) Strings(name string) []string {
	value := o.take(name)
	list, ok := value.([]any)
	out := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := unwrapped(item).(string)
		ok = ok && isText
		out = append(out, text)
	}
	if value != nil && !ok {
		o.mistyped(name, "a list of texts")
		return nil
	}
	return out
}

// Map returns an object whose values are texts.
func (o *Object) Map(name string) map[string]string {
	value := o.take(name)
	fields, ok := value.(map[string]any)
	out := make(map[string]string, len(fields))
	for key, field := range fields {
		text, isText := unwrapped(field).(string)
		ok = ok && (isText || field == nil)
		out[key] = text
	}
	if value != nil && !ok {
		o.mistyped(name, "an object of texts")
		return nil
	}
	return out
}

// Object returns an object to read field by field; one without fields where it is missing.
func (o *Object) Object(name string) *Object {
	if below := o.read[name]; len(below) == 1 {
		return below[0]
	}
	value := o.take(name)
	fields, ok := value.(map[string]any)
	if value != nil && !ok {
		o.mistyped(name, "an object")
	}
	below := newObject(o.Path(name), fields, o.all)
	o.read[name] = []*Object{below}
	return below
}

// Objects returns a list of objects to read field by field.
func (o *Object) Objects(name string) []*Object {
	value := o.take(name)
	list, ok := value.([]any)
	if !ok {
		if value != nil {
			o.mistyped(name, "a list of objects")
		}
		return nil
	}
	below := make([]*Object, 0, len(list))
	for i, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			o.mistyped(name, "a list of objects")
			return nil
		}
		below = append(below, newObject(o.Path(name)+"["+strconv.Itoa(i)+"]", fields, o.all))
	}
	o.read[name] = below
	return below
}

// Report adds a finding about a field, which counts as read. The message goes on after the field's name.
func (o *Object) Report(level provider.FindingLevel, code, name, message string) {
	o.take(name)
	*o.all = append(*o.all, provider.Finding{Level: level, Code: code, Path: o.Path(name), Message: message})
}

// Add adds a finding whose path is not that of a field to be read, such as one of a key in a map. No field counts as
// read by it.
func (o *Object) Add(f provider.Finding) { *o.all = append(*o.all, f) }

// Findings returns all that were reported in the description, and a Loss for each field that was not read, sorted by
// path. It is called once, at the top and at the end.
func (o *Object) Findings() []provider.Finding {
	o.reportUnread()
	slices.SortStableFunc(*o.all, func(a, b provider.Finding) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Code, b.Code))
	})
	return *o.all
}

func (o *Object) reportUnread() {
	for _, name := range o.Names() {
		below, known := o.read[name]
		if !known {
			o.Report(provider.FindingLoss, provider.FindingUnknownField, name,
				"this driver does not know the field; new instances are made without what it means")
		}
		for _, object := range below {
			object.reportUnread()
		}
	}
}

// take marks a field as read.
func (o *Object) take(name string) any {
	if _, again := o.read[name]; !again {
		o.read[name] = nil
	}
	return o.fields[name]
}

func (o *Object) mistyped(name, want string) {
	if !reported(*o.all, o.Path(name)) { // It may be read twice.
		o.Report(provider.FindingBlocker, provider.FindingInvalidField, name, "must be "+want)
	}
}

// unwrapped returns V of {"value": V}.
func unwrapped(value any) any {
	if fields, ok := value.(map[string]any); ok && len(fields) == 1 {
		if inner, wraps := fields["value"]; wraps {
			return inner
		}
	}
	return value
}

// reported is true where something about the path was found already.
func reported(findings []provider.Finding, path string) bool {
	return slices.ContainsFunc(findings, func(f provider.Finding) bool { return f.Path == path })
}
