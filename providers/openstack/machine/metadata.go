package machine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxMetadata        = 40 // Nova's default limit is 128.
	maxValueCharacters = 255
	maxTags            = 40 // Nova's limit is 50.
	maxTagCharacters   = 60
	// maxRecordBytes limits the total length of metadata names, and of tags. Each list is stored in one metadata value,
	// so that Machinist can later remove what it has set.
	maxRecordBytes = 255
)

// metadataNameFormat is Nova's format. metadataNameFormat excludes the comma, which separates the names in
// Spec.MetadataNames. https://docs.openstack.org/api-ref/compute/#create-or-update-metadata-item
var metadataNameFormat = regexp.MustCompile(`^[-a-zA-Z0-9_:. ]{1,255}$`)

// CheckMetadata returns an error if a specification must not have the metadata.
func CheckMetadata(metadata map[string]string) error {
	return (&Spec{Metadata: metadata}).validateMetadata()
}

// CheckTags returns an error if a specification must not have the tags.
func CheckTags(tags []string) error { return (&Spec{Tags: tags}).validateTags() }

func (s *Spec) validateMetadata() error {
	if len(s.Metadata) > maxMetadata {
		return provider.InvalidField("metadata", "has %d entries, more than %d", len(s.Metadata), maxMetadata)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Metadata)) {
		value, lower := s.Metadata[name], strings.ToLower(name)
		switch {
		case !metadataNameFormat.MatchString(name):
			return provider.InvalidField("metadata",
				"%.64q is not a valid name: 1 to 255 letters, digits, spaces, hyphens, underscores, colons and dots", name)
		case isReserved(name):
			return provider.InvalidField("metadata", "%.64q is reserved for Machinist", name)
		// Names in Nova's database are not case-sensitive.
		case seen[lower]:
			return provider.InvalidField("metadata", "%.64q is used twice: names are not case-sensitive", name)
		case utf8.RuneCountInString(value) > maxValueCharacters || !printable(value):
			return provider.InvalidField("metadata", "the value %.64q of %.64q is longer than %d characters or not printable",
				value, name, maxValueCharacters)
		}
		seen[lower] = true
	}
	if n := len(s.MetadataNames()); n > maxRecordBytes {
		return provider.InvalidField("metadata", "the names have %d bytes in total, more than %d", n, maxRecordBytes)
	}
	return nil
}

func (s *Spec) validateTags() error {
	if len(s.Tags) > maxTags {
		return provider.InvalidField("tags", "has %d entries, more than %d", len(s.Tags), maxTags)
	}
	for i, tag := range s.Tags {
		at := fmt.Sprintf("tags[%d]", i)
		switch {
		case tag == "" || utf8.RuneCountInString(tag) > maxTagCharacters || strings.ContainsAny(tag, "/,") ||
			!printable(tag):
			return provider.InvalidField(at, "%.64q is not a valid tag: 1 to %d printable characters without slash and comma",
				tag, maxTagCharacters)
		case isReserved(tag):
			return provider.InvalidField(at, "%.64q is reserved for Machinist", tag)
		case slices.Contains(s.Tags[:i], tag):
			return provider.InvalidField(at, "%.64q is used twice", tag)
		}
	}
	if n := len(strings.Join(s.SortedTags(), ",")); n > maxRecordBytes {
		return provider.InvalidField("tags", "have %d bytes in total, more than %d", n, maxRecordBytes)
	}
	return nil
}

func isReserved(name string) bool { return strings.HasPrefix(strings.ToLower(name), "machinist") }
