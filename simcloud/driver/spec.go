package driver

import (
	stdjson "encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/json"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// These are the apiVersion and kind of a providerSpec.
const (
	APIVersion = "sim.machinist.dev/v1beta1"
	Kind       = "SimMachine"
)

// Spec is the providerSpec of an instance in the simulated cloud.
type Spec struct {
	// APIVersion must be "sim.machinist.dev/v1beta1", and Kind must be "SimMachine".
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Region is the region in which the instance is created, such as "sim-1". Required.
	Region string `json:"region"`
	// InstanceType is the name of an instance type. Required.
	InstanceType string `json:"instanceType"`
	// Image is the name of an image. Required.
	Image string `json:"image"`
	// Zone is the name of a zone in the region. Default: a zone that the cloud selects.
	Zone string `json:"zone,omitempty"`
	// Endpoint is one of the endpoints in the configuration of the provider process. Default: the first endpoint in
	// that configuration.
	Endpoint string `json:"endpoint,omitempty"`
	// Tags are added to new instances, in addition to Machinist's tags. Existing instances do not change. Keys must not
	// begin with "machinist-". Default: none.
	Tags map[string]string `json:"tags,omitempty"`
}

// ownTags is the prefix of all tags that the driver sets itself.
const ownTags = "machinist-"

// maxTags leaves room for the driver's own tags.
const maxTags = simcloud.MaxTags - 10

// maxSpecBytes is far larger than any useful providerSpec.
const maxSpecBytes = 64 << 10

var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parse rejects unknown and repeated fields. The errors of parse contain the path of the field.
func (d *Driver) parse(raw []byte) (Spec, error) {
	var spec Spec
	if len(raw) > maxSpecBytes {
		return spec, provider.Errorf(provider.InvalidArgument, "providerSpec has %d bytes, more than the maximum of %d",
			len(raw),
			maxSpecBytes)
	}
	if trimmed := strings.TrimSpace(string(raw)); !strings.HasPrefix(trimmed, "{") {
		return spec, provider.Errorf(provider.InvalidArgument, "providerSpec must be an object of kind %s", Kind)
	}
	strict, err := json.UnmarshalStrict(raw, &spec)
	wrongType, isWrongType := errors.AsType[*stdjson.UnmarshalTypeError](err)
	if err != nil && !isWrongType {
		return spec, provider.Errorf(provider.InvalidArgument, "providerSpec is not valid JSON")
	}
	// Check apiVersion and kind first, because the fields of another kind have no meaning.
	switch {
	case spec.APIVersion != APIVersion:
		return spec, provider.InvalidField("apiVersion", "must be %q, not %.64q", APIVersion, spec.APIVersion)
	case spec.Kind != Kind:
		return spec, provider.InvalidField("kind", "must be %q, not %.64q", Kind, spec.Kind)
	case isWrongType:
		return spec, provider.InvalidField(shorten(wrongType.Field), "must be %s, not of JSON type %s",
			typeOf(wrongType.Field), jsonType(wrongType.Value))
	case len(strict) > 0:
		return spec, strictError(strict[0])
	}
	spec.Endpoint = strings.TrimRight(spec.Endpoint, "/")
	return spec, d.check(spec)
}

const isRequired = "is required"

// check returns an error with the path of an invalid value.
func (d *Driver) check(spec Spec) error {
	for _, field := range []struct {
		path, value string
		optional    bool
	}{
		{path: "region", value: spec.Region},
		{path: "zone", value: spec.Zone, optional: true},
		{path: "instanceType", value: spec.InstanceType},
		{path: "image", value: spec.Image},
	} {
		switch {
		case field.value == "" && !field.optional:
			return provider.InvalidField(field.path, isRequired)
		case field.value != "" && !name.MatchString(field.value):
			return provider.InvalidField(field.path,
				"%.64q must consist of at most 63 lower case letters, digits and '-'", field.value)
		}
	}
	if len(spec.Tags) > maxTags {
		return provider.InvalidField("tags", "there are %d tags, more than the maximum of %d", len(spec.Tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Tags)) {
		path := shorten("tags." + key)
		switch value := spec.Tags[key]; {
		case key == "" || len(key) > simcloud.MaxTagKeyLength || strings.Contains(key, "=") || !printable(key):
			return provider.InvalidField(path, "the key must be 1 to %d bytes of printable text without '='",
				simcloud.MaxTagKeyLength)
		case strings.HasPrefix(key, ownTags):
			return provider.InvalidField(path, "the driver reserves keys that begin with %q", ownTags)
		case len(value) > simcloud.MaxTagValueLength || !printable(value):
			return provider.InvalidField(path, "the value must be at most %d bytes of printable text",
				simcloud.MaxTagValueLength)
		}
	}
	if spec.Endpoint != "" && !slices.Contains(d.endpoints, spec.Endpoint) {
		return provider.InvalidField("endpoint", "%.128q is not an endpoint that this provider may use", spec.Endpoint)
	}
	return nil
}

// strictError returns an error with the path of an unknown or repeated field.
func strictError(err error) error {
	what := "is not a field of " + Kind
	if strings.HasPrefix(err.Error(), "duplicate") {
		what = "occurs twice"
	}
	path := ""
	if field, ok := errors.AsType[json.FieldError](err); ok {
		path = shorten(field.FieldPath())
	}
	return provider.InvalidField(path, "%s", what)
}

func typeOf(field string) string {
	if field == "tags" {
		return "an object of strings"
	}
	return "a string"
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// jsonType removes the value from a type name such as "number -5".
func jsonType(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind
}

// shorten truncates a path. Users choose field names, so a long path could fill a condition message.
func shorten(path string) string {
	const most = 128
	if len(path) <= most {
		return path
	}
	return strings.ToValidUTF8(path[:most], "") + "…"
}

// endpointOf returns the scope or, if it is empty, the endpoint in the providerSpec. The default endpoint is "". An
// invalid providerSpec must not prevent the deletion of its machine. For an invalid providerSpec, the result is the
// default endpoint. Create refuses an invalid providerSpec, so no instance exists at another endpoint.
func (d *Driver) endpointOf(scope string, raw []byte) string {
	if scope != "" {
		return scope
	}
	spec, err := d.parse(raw)
	if err != nil {
		return ""
	}
	return spec.Endpoint
}
