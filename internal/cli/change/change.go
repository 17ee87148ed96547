// Package change says what differs between two versions of an object.
package change

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change is one field that differs.
type Change struct {
	// Path of the field, such as spec.template.spec.version or spec.template.metadata.labels[app].
	Path string `json:"path"`
	// From and To are the values as JSON; left out where the field is not set.
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// Between returns what differs between two values of one type, under a path, in the order of the paths. Lists differ
// as a whole.
func Between(path string, from, to any) ([]Change, error) {
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

// generic returns a value as JSON has it.
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
			walk(under(path, key), x[key], y[key], changes)
		}
		return
	}
	*changes = append(*changes, Change{Path: path, From: encode(a), To: encode(b)})
}

// under writes keys that are no names of fields, such as those of labels, in brackets.
func under(path, key string) string {
	if strings.HasSuffix(path, "labels") || strings.HasSuffix(path, "annotations") ||
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
	text, _ := json.Marshal(value) // it was JSON
	return text
}

// String says what changes in words.
func (c Change) String() string {
	switch {
	case c.From == nil:
		return fmt.Sprintf("%s: + %s", c.Path, plain(c.To))
	case c.To == nil:
		return fmt.Sprintf("%s: %s removed", c.Path, plain(c.From))
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, plain(c.From), plain(c.To))
}

// plain leaves the quotes of a text out where they say nothing.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" && text == strings.TrimSpace(text) {
		return text
	}
	return string(value)
}
