// Package change lists the differences between two versions of an object.
package change

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change describes a field that differs between two versions of an object.
type Change struct {
	// Path is the path of the field, such as spec.template.spec.version or spec.template.metadata.labels[app].
	Path string `json:"path"`
	// From and To are the old and the new value as JSON. Both fields are nil if the field is not set.
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// Diff compares two values of the same type and returns the differences, sorted by path. All paths start with the
// given path. Lists are compared as a whole, except for the domains of a placement, which are compared by name.
func Diff(path string, from, to any) ([]Change, error) {
	a, err := generic(from)
	if err != nil {
		return nil, err
	}
	b, err := generic(to)
	if err != nil {
		return nil, err
	}
	var changes []Change
	walk(path, a, b, &changes)
	return changes, nil
}

func generic(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var out any
	if err := decoder.Decode(&out); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return out, nil
}

func walk(path string, a, b any, changes *[]Change) {
	if reflect.DeepEqual(a, b) {
		return
	}
	if strings.HasSuffix(path, ".placement.domains") {
		x, before := byName(a)
		y, after := byName(b)
		if order := common(before, after); !slices.Equal(order, common(after, before)) {
			*changes = append(*changes, Change{Path: path, From: encode(before), To: encode(after)})
		}
		a, b = x, y
	}
	x, xok := a.(map[string]any)
	y, yok := b.(map[string]any)
	if (xok || a == nil) && (yok || b == nil) && (len(x) > 0 || len(y) > 0) {
		keys := slices.Sorted(maps.Keys(x))
		for key := range y {
			if _, both := x[key]; !both {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			walk(join(path, key), x[key], y[key], changes)
		}
		return
	}
	*changes = append(*changes, Change{Path: path, From: encode(a), To: encode(b)})
}

// byName converts the list of domains of a placement to a map without their names, and also returns the names in order.
// The options of a domain become a list of classes.
func byName(list any) (domains map[string]any, names []string) {
	items, _ := list.([]any)
	domains = make(map[string]any, len(items))
	for _, item := range items {
		domain, _ := item.(map[string]any)
		name, _ := domain["name"].(string)
		domain = maps.Clone(domain)
		delete(domain, "name")
		var classes []any
		options, _ := domain["options"].([]any)
		for _, option := range options {
			fields, _ := option.(map[string]any)
			classes = append(classes, fields["className"])
		}
		domain["options"] = classes
		domains[name], names = domain, append(names, name)
	}
	return domains, names
}

// common returns the elements of a that are also in b, in the order of a.
func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// join appends a key to a path. Keys that are not field names, such as labels, are put in brackets.
func join(path, key string) string {
	if strings.HasSuffix(path, "labels") || strings.HasSuffix(path, ".placement.domains") ||
		strings.HasSuffix(path, "annotations") ||
		strings.HasSuffix(path, "matchLabels") || strings.ContainsAny(key, "./ ") {
		return path + "[" + key + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func encode(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	text, _ := json.Marshal(value) // Decoded JSON can always be encoded.
	return text
}

// String returns the change as text.
func (c Change) String() string {
	switch {
	case c.From == nil:
		return fmt.Sprintf("%s: + %s", c.Path, unquoted(c.To))
	case c.To == nil:
		return fmt.Sprintf("%s: %s removed", c.Path, unquoted(c.From))
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, unquoted(c.From), unquoted(c.To))
}

// unquoted formats a JSON value for display. Strings lose their quotes, unless they are empty or have outer spaces.
func unquoted(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" && text == strings.TrimSpace(text) {
		return text
	}
	return string(value)
}
