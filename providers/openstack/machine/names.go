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

// maxNameCharacters is how long the names of OpenStack's resources are at most.
const maxNameCharacters = 255

var (
	uuidFormat  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	labelFormat = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// requiredName refuses what is empty or neither the name nor the ID of a resource.
func requiredName(field, name, what string) error {
	if name == "" {
		return provider.InvalidField(field, "is required: %s", what)
	}
	return optionalName(field, name)
}

// optionalName refuses what is neither the name nor the ID of a resource. Empty is fine.
func optionalName(field, name string) error {
	switch {
	case utf8.RuneCountInString(name) > maxNameCharacters || !printable(name):
		return provider.InvalidField(field, "%.64q is longer than %d characters or not printable", name, maxNameCharacters)
	// Nova and Neutron refuse such a name, or cut it.
	case strings.TrimSpace(name) != name:
		return provider.InvalidField(field, "%.64q begins or ends with a space", name)
	}
	return nil
}

// names refuses a list that is long, or has an entry that is empty, no name or there twice.
func names(field string, list []string) error {
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
			return provider.InvalidField(at, "%.64q is there twice", name)
		}
	}
	return nil
}

// oneOf refuses a value that is neither empty nor one of all.
func oneOf(field, value string, all ...string) error {
	if value != "" && !slices.Contains(all, value) {
		return provider.InvalidField(field, "%.64q is not one of %s", value, strings.Join(all, ", "))
	}
	return nil
}

// printable is whether the text can be shown and stored. The replacement character stands for bytes that are no text.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
