package bootstrap

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// valuePlaceholder matches <<VALUES.name>>, plain or URL-encoded, with the exclamation marks of an escaped placeholder.
var valuePlaceholder = regexp.MustCompile(`<<(!*)VALUES\.([A-Za-z][A-Za-z0-9_-]{0,62})>>|` +
	`%3[Cc]%3[Cc]((?:!|%21)*)VALUES\.([A-Za-z][A-Za-z0-9_-]{0,62})%3[Ee]%3[Ee]`)

// ReplaceValues replaces each placeholder <<VALUES.name>> by its value, which is URL-encoded if the placeholder is.
// Placeholders in the values are escaped, so that Render does not replace them. ReplaceValues returns an error if a
// value is missing or the template cannot be decoded.
func ReplaceValues(template []byte, values map[string]string) ([]byte, error) {
	var missing []string
	out, err := RewriteTexts(template, func(text []byte) ([]byte, error) {
		return valuePlaceholder.ReplaceAllFunc(text, func(found []byte) []byte {
			groups := valuePlaceholder.FindSubmatch(found)
			name, encoded := string(groups[2])+string(groups[4]), len(groups[4]) > 0
			if len(groups[1])+len(groups[3]) > 0 {
				return unescaped(found)
			}
			value, known := values[name]
			if !known {
				missing = append(missing, "<<VALUES."+name+">>")
				return found
			}
			value = placeholder.ReplaceAllStringFunc(value, escape)
			if encoded {
				value = urlEncoded(value)
			}
			return []byte(value)
		}), nil
	})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("user data contains %s, for which spec.values has no value",
			strings.Join(slices.Compact(missing), ", "))
	}
	return out, nil
}

var opening = regexp.MustCompile(`^(<<|%3[Cc]%3[Cc])`)

// escape adds an exclamation mark to a placeholder. Render removes the exclamation mark and keeps the placeholder.
func escape(found string) string { return opening.ReplaceAllString(found, "$1!") }
