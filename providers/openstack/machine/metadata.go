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
	maxMetadata        = 40 // of the 128 that a server may have unless the cloud's quota says otherwise
	maxValueCharacters = 255
	maxTags            = 40 // of the 50 that a server may have
	maxTagCharacters   = 60
	// maxRecordBytes is how long the names of the metadata and the tags are together: each are a value of the server's
	// metadata, by which Machinist knows later what is its own to remove.
	maxRecordBytes = 255
)

// metadataNameFormat is Nova's: https://docs.openstack.org/api-ref/compute/#create-or-update-metadata-item. It excludes
// the comma that separates the names in Spec.MetadataNames.
var metadataNameFormat = regexp.MustCompile(`^[-a-zA-Z0-9_:. ]{1,255}$`)

func (s *Spec) validateMetadata() error {
	if len(s.Metadata) > maxMetadata {
		return provider.InvalidField("metadata", "has %d entries, more than %d", len(s.Metadata), maxMetadata)
	}
	folded := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Metadata)) {
		value, lower := s.Metadata[name], strings.ToLower(name)
		switch {
		case !metadataNameFormat.MatchString(name):
			return provider.InvalidField("metadata",
				"%.64q is not a name: 1 to 255 letters, digits, spaces, hyphens, underscores, colons and dots", name)
		case reserved(name):
			return provider.InvalidField("metadata", "%.64q is Machinist's own", name)
		// Nova's database compares them without case.
		case folded[lower]:
			return provider.InvalidField("metadata", "%.64q is there twice: names do not differ by case alone", name)
		case utf8.RuneCountInString(value) > maxValueCharacters || !printable(value):
			return provider.InvalidField("metadata", "the value %.64q of %.64q is longer than %d characters or not printable",
				value, name, maxValueCharacters)
		}
		folded[lower] = true
	}
	if n := len(s.MetadataNames()); n > maxRecordBytes {
		return provider.InvalidField("metadata", "the names are %d bytes long together, more than %d", n, maxRecordBytes)
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
			return provider.InvalidField(at, "%.64q is not a tag: 1 to %d printable characters without slash and comma", tag,
				maxTagCharacters)
		case reserved(tag):
			return provider.InvalidField(at, "%.64q is Machinist's own", tag)
		case slices.Contains(s.Tags[:i], tag):
			return provider.InvalidField(at, "%.64q is there twice", tag)
		}
	}
	if n := len(strings.Join(s.SortedTags(), ",")); n > maxRecordBytes {
		return provider.InvalidField("tags", "are %d bytes long together, more than %d", n, maxRecordBytes)
	}
	return nil
}

// reserved is whether Machinist keeps a name for itself.
func reserved(name string) bool { return strings.HasPrefix(strings.ToLower(name), "machinist") }
