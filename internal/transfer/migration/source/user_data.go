package source

import (
	"regexp"
	"slices"

	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/pkg/provider"
)

// osmPlaceholder matches placeholders of operating-system-manager: upper-case words with underscores between single
// angle brackets. In Ignition, the brackets are URL-encoded.
var osmPlaceholder = regexp.MustCompile(`(<|%3[Cc])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(>|%3[Ee])`)

// TranslateUserData replaces the placeholders of the old system in its user data with those of Machinist. The result
// unknown contains the sorted placeholders that Machinist would not replace. TranslateUserData fails if the user data
// cannot be decoded.
func TranslateUserData(group string, old []byte) (translated []byte, unknown []string, err error) {
	translated, err = bootstrap.RewriteTexts(old, func(text []byte) ([]byte, error) {
		if group != provider.SourceClusterK8s {
			return text, nil // Gardener has the same placeholders as Machinist, and OpenShift has none.
		}
		return osmPlaceholder.ReplaceAllFunc(text, func(found []byte) []byte {
			groups := osmPlaceholder.FindSubmatch(found)
			if string(groups[2]) != bootstrap.MachineName {
				unknown = append(unknown, string(found))
				return found
			}
			return slices.Concat(groups[1], groups[1], groups[2], groups[3], groups[3])
		}), nil
	})
	unknown = append(unknown, bootstrap.Suspicious(translated)...)
	slices.Sort(unknown)
	return translated, slices.Compact(unknown), err
}
