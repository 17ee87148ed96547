// Package legacy reads the descriptions of old systems, for implementations of provider.Importer. An Object remembers
// which of its fields were read. Findings reports all other fields:
//
//	old, err := legacy.Parse(req.Legacy.Spec)
//	spec.Region = old.RequiredString("region")
//	spec.Disk = old.Object("disk").Int("sizeGiB")
//	old.MarkRead("apiVersion", "kind")
//	return provider.ImportedSpec{Spec: …, Findings: old.Findings()}, nil
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

	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
)

// Object is one JSON object of an old description. Methods that read a field return the zero value if the field is
// missing, null or of another type. A value of another type is also reported as a Blocker. A value in the form
// {"value": …} of machine.k8s.io is unwrapped.
type Object struct {
	path   string
	fields map[string]any
	// The keys of readFields are the names of the fields that the driver has read. If a field contains objects, the
	// value is the list of these objects, and each of them records its own read fields.
	readFields map[string][]*Object
	// findings are the findings of the whole description, shared by all its objects.
	findings *[]provider.Finding
}

// Parse parses a description. It returns InvalidArgument if the description is not a single JSON object of at most
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
	// The decoder's error may quote a value, so the message does not include it.
	if decoder.Decode(&fields) != nil || fields == nil || len(bytes.TrimSpace(raw[decoder.InputOffset():])) > 0 {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description is not a JSON object")
	}
	return newObject("", fields, new([]provider.Finding)), nil
}

func newObject(path string, fields map[string]any, findings *[]provider.Finding) *Object {
	return &Object{path: path, fields: fields, readFields: map[string][]*Object{}, findings: findings}
}

// Has returns true if the field is set and not null. A call of Has does not mark the field as read. Use Has only if
// an empty value has a meaning.
func (o *Object) Has(name string) bool { return o.fields[o.key(name)] != nil }

// HasContent returns true if the field has a value that is not empty. Empty are null, an empty string, and lists and
// objects without content. Old systems often write empty fields, which have no effect. A call of HasContent does not
// mark the field as read.
func (o *Object) HasContent(name string) bool { return hasContent(o.fields[o.key(name)]) }

func hasContent(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case []any:
		return slices.ContainsFunc(v, hasContent)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasContent)
	}
	return true
}

// Names returns the sorted names of the fields that are set and not null.
func (o *Object) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(o.fields)), func(name string) bool { return o.fields[name] == nil })
}

// Path returns the path of the named field from the root of the old description, for the path of a Finding.
func (o *Object) Path(name string) string {
	const limit = 128 // A user may have chosen the name: do not let it fill a condition's message.
	if o.path != "" {
		name = o.path + "." + name
	}
	if len(name) > limit {
		name = name[:limit] + "…"
	}
	return strings.ToValidUTF8(name, "�")
}

// MarkRead marks the named fields as read, so that Findings does not report them. Use MarkRead for fields that have
// no meaning for the instance.
func (o *Object) MarkRead(names ...string) {
	for _, name := range names {
		o.get(name)
	}
}

// String returns the string in a field.
func (o *Object) String(name string) string {
	value := unwrapped(o.get(name))
	text, ok := value.(string)
	if value != nil && !ok {
		o.mistyped(name, "a string")
	}
	return text
}

// RequiredString returns the string in a field that every instance needs. A missing or empty field is a Blocker.
func (o *Object) RequiredString(name string) string {
	value := o.String(name)
	if value == "" && !reported(*o.findings, o.Path(name)) {
		o.Report(provider.FindingBlocker, provider.FindingRequiredField, name, "is required; set it with an override")
	}
	return value
}

// Bool returns the boolean in a field. The strings "true" and "false", as in a ConfigMap, count as booleans.
func (o *Object) Bool(name string) bool {
	value := unwrapped(o.get(name))
	if text, ok := value.(string); ok && (text == "true" || text == "false") {
		return text == "true"
	}
	truth, ok := value.(bool)
	if value != nil && !ok {
		o.mistyped(name, "true or false")
	}
	return truth
}

// Int returns the integer in a field. A string that contains an integer counts too.
func (o *Object) Int(name string) int64 {
	value := unwrapped(o.get(name))
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
		o.mistyped(name, "an integer")
		return 0
	}
	return number
}

// Number returns the number in a field, or nil if the field is missing, null or not a number. A string counts too if
// it contains a number or a quantity of Kubernetes, such as 0.5 or 500m.
func (o *Object) Number(name string) *float64 {
	text := ""
	switch value := unwrapped(o.get(name)).(type) {
	case nil:
		return nil
	case json.Number:
		text = value.String()
	case string:
		text = value
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil && !strings.ContainsAny(text, "eE") { // A quantity with a large exponent needs much memory.
		if quantity, invalid := resource.ParseQuantity(text); invalid == nil {
			number, err = strconv.ParseFloat(quantity.AsDec().String(), 64)
		}
	}
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		o.mistyped(name, "a number")
		return nil
	}
	return &number
}

// Strings returns the list of strings in a field.
func (o *Object) Strings(name string) []string {
	value := o.get(name)
	list, ok := value.([]any)
	out := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := unwrapped(item).(string)
		ok = ok && isText
		out = append(out, text)
	}
	if value != nil && !ok {
		o.mistyped(name, "a list of strings")
		return nil
	}
	return out
}

// Map returns the value of a field that contains an object with string values. Any other value is reported as a
// finding.
func (o *Object) Map(name string) map[string]string {
	value := o.get(name)
	fields, ok := value.(map[string]any)
	out := make(map[string]string, len(fields))
	for key, field := range fields {
		text, isText := unwrapped(field).(string)
		ok = ok && (isText || field == nil)
		out[key] = text
	}
	if value != nil && !ok {
		o.mistyped(name, "an object with string values")
		return nil
	}
	return out
}

// Object returns the object in a field, to be read field by field. It returns an object without fields if the field
// is missing.
func (o *Object) Object(name string) *Object {
	if below := o.readFields[o.key(name)]; len(below) == 1 {
		return below[0]
	}
	value := o.get(name)
	fields, ok := value.(map[string]any)
	if value != nil && !ok {
		o.mistyped(name, "an object")
	}
	below := newObject(o.Path(name), fields, o.findings)
	o.readFields[o.key(name)] = []*Object{below}
	return below
}

// Objects returns the value of a field that contains a list of objects. The caller reads the fields of each object.
func (o *Object) Objects(name string) []*Object {
	value := o.get(name)
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
		below = append(below, newObject(o.Path(name)+"["+strconv.Itoa(i)+"]", fields, o.findings))
	}
	o.readFields[o.key(name)] = below
	return below
}

// Report adds a finding about a field and marks the field as read. The message continues a sentence that begins with
// the field's path, such as "must be a number".
func (o *Object) Report(level provider.FindingLevel, code, name, message string) {
	o.get(name)
	*o.findings = append(*o.findings, provider.Finding{Level: level, Code: code, Path: o.Path(name), Message: message})
}

// MissingCredentials returns the Blocker for credentials that lack keys. An entry has all names of one key, such as
// "password or OS_PASSWORD".
func MissingCredentials(keys ...string) provider.Finding {
	return provider.Finding{Level: provider.FindingBlocker, Code: provider.FindingMissingCredentials,
		Message: "the credentials of the old system lack " + strings.Join(keys, ", ")}
}

// Add adds a finding whose path is not the path of a field, such as a finding about a key in a map. Add marks no
// field as read.
func (o *Object) Add(f provider.Finding) { *o.findings = append(*o.findings, f) }

// Findings returns all reported findings, and a Loss for each field that was not read, sorted by path. Call Findings
// once, on the object that Parse returned, after all fields were read.
func (o *Object) Findings() []provider.Finding {
	o.reportUnread()
	slices.SortStableFunc(*o.findings, func(a, b provider.Finding) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Code, b.Code))
	})
	return *o.findings
}

func (o *Object) reportUnread() {
	for _, name := range o.Names() {
		below, known := o.readFields[name]
		if !known && o.HasContent(name) {
			o.Report(provider.FindingLoss, provider.FindingUnknownField, name,
				"The provider does not know this field. New instances are created without its setting.")
		}
		for _, object := range below {
			object.reportUnread()
		}
	}
}

func (o *Object) get(name string) any {
	key := o.key(name)
	if _, again := o.readFields[key]; !again {
		o.readFields[key] = nil
	}
	return o.fields[key]
}

// key returns the name of a field as it is written in the old object. The old systems decode their descriptions with
// Go's decoder, which ignores the case of names unless a field has exactly the wanted name.
func (o *Object) key(name string) string {
	if _, exact := o.fields[name]; exact {
		return name
	}
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if strings.EqualFold(key, name) {
			return key
		}
	}
	return name
}

func (o *Object) mistyped(name, want string) {
	if !reported(*o.findings, o.Path(name)) { // The driver may read a field twice.
		o.Report(provider.FindingBlocker, provider.FindingInvalidField, name, "must be "+want)
	}
}

func unwrapped(value any) any {
	if fields, ok := value.(map[string]any); ok && len(fields) == 1 {
		if inner, wraps := fields["value"]; wraps {
			return inner
		}
	}
	return value
}

func reported(findings []provider.Finding, path string) bool {
	return slices.ContainsFunc(findings, func(f provider.Finding) bool { return f.Path == path })
}
