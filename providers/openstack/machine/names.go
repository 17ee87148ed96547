package machine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"machinist.dev/machinist/pkg/provider"
)

const maxNameCharacters = 255

var (
	uuidFormat  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	labelFormat = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

func requiredName(field, name, what string) error {
	if name == "" {
		return provider.InvalidField(field, "is required: set %s", what)
	}
	return optionalName(field, name)
}

// optionalName also accepts an empty value.
func optionalName(field, name string) error {
	switch {
	case utf8.RuneCountInString(name) > maxNameCharacters || !printable(name):
		return provider.InvalidField(field, "%.64q is longer than %d characters or not printable", name, maxNameCharacters)
	// Nova and Neutron reject such names or remove the spaces.
	case strings.TrimSpace(name) != name:
		return provider.InvalidField(field, "%.64q begins or ends with a space", name)
	}
	return nil
}

// nameList refuses a list that is too long or has an empty, invalid or repeated entry.
func nameList(field string, list []string) error {
	if len(list) > maxReferences {
		return provider.InvalidField(field, "has %d entries, more than %d", len(list), maxReferences)
	}
	for i, name := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if name == "" {
			return provider.InvalidField(at, "is empty")
		}
		if err := optionalName(at, name); err != nil {
			return err
		}
		if slices.Contains(list[:i], name) {
			return provider.InvalidField(at, "%.64q is used twice", name)
		}
	}
	return nil
}

// oneOf also accepts an empty value.
func oneOf(field, value string, all ...string) error {
	if value != "" && !slices.Contains(all, value) {
		return provider.InvalidField(field, "%.64q is not one of %s", value, strings.Join(all, ", "))
	}
	return nil
}

// printable reports whether the text can be shown and stored. unicode.ReplacementChar indicates invalid UTF-8.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
