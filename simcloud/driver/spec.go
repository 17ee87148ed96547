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

// What a providerSpec says that it is.
const (
	APIVersion = "sim.machinist.dev/v1beta1"
	Kind       = "SimMachine"
)

// Spec is the providerSpec of an instance of the simulated cloud.
type Spec struct {
	// APIVersion and Kind are those above.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Region, InstanceType and Image are names that the cloud knows.
	Region       string `json:"region"`
	InstanceType string `json:"instanceType"`
	Image        string `json:"image"`
	// Zone is one of the region's. Default: the cloud chooses.
	Zone string `json:"zone,omitempty"`
	// Endpoint chooses among the endpoints that the provider process may use. Default: the first of them.
	Endpoint string `json:"endpoint,omitempty"`
	// Tags are on instances beside Machinist's own, from their creation; those of an existing one stay as they are. Keys
	// that begin with "machinist-" are refused. Default: none.
	Tags map[string]string `json:"tags,omitempty"`
}

// ownTags is how the keys of all tags begin that this driver sets itself.
const ownTags = "machinist-"

// maxTags leaves room for those of the driver.
const maxTags = simcloud.MaxTags - 10

// maxSpecBytes is far above any providerSpec that means something.
const maxSpecBytes = 64 << 10

// name is what regions, zones, types and images are called.
var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parse reads a providerSpec strictly and says at which path it is wrong.
func (d *Driver) parse(raw []byte) (Spec, error) {
	var spec Spec
	if len(raw) > maxSpecBytes {
		return spec, provider.Errorf(provider.InvalidArgument, "providerSpec is %d bytes long, more than %d", len(raw),
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
	// What it claims to be comes first: of another kind, the fields mean nothing.
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

// check says at which path a value cannot be right.
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
				"%.64q must be lower case letters, digits and '-', at most 63 characters", field.value)
		}
	}
	if len(spec.Tags) > maxTags {
		return provider.InvalidField("tags", "are %d, more than %d", len(spec.Tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Tags)) {
		path := shorten("tags." + key)
		switch value := spec.Tags[key]; {
		case key == "" || len(key) > simcloud.MaxTagKeyLength || strings.Contains(key, "=") || !printable(key):
			return provider.InvalidField(path, "the key must be 1 to %d bytes of printable text without '='",
				simcloud.MaxTagKeyLength)
		case strings.HasPrefix(key, ownTags):
			return provider.InvalidField(path, "keys that begin with %q are the driver's own", ownTags)
		case len(value) > simcloud.MaxTagValueLength || !printable(value):
			return provider.InvalidField(path, "the value must be at most %d bytes of printable text",
				simcloud.MaxTagValueLength)
		}
	}
	if spec.Endpoint != "" && !slices.Contains(d.endpoints, spec.Endpoint) {
		return provider.InvalidField("endpoint", "%.128q is not one of those that this provider may use", spec.Endpoint)
	}
	return nil
}

// strictError names the field that is unknown or there twice.
func strictError(err error) error {
	what := "is not a field of " + Kind
	if strings.HasPrefix(err.Error(), "duplicate") {
		what = "is there twice"
	}
	path := ""
	if field, ok := errors.AsType[json.FieldError](err); ok {
		path = shorten(field.FieldPath())
	}
	return provider.InvalidField(path, "%s", what)
}

// typeOf is what a field must be.
func typeOf(field string) string {
	if field == "tags" {
		return "an object of strings"
	}
	return "a string"
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// jsonType drops what the decoder adds of the value: "number -5" is a number.
func jsonType(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind
}

// shorten keeps a path that somebody made up from filling a condition's message.
func shorten(path string) string {
	const most = 128
	if len(path) <= most {
		return path
	}
	return strings.ToValidUTF8(path[:most], "") + "…"
}

// endpointOf is where an instance is looked for, "" for the default: where it was made, as Instance.Scope recorded,
// else where providerSpec says. A providerSpec that is wrong in whatever way must not keep its machine from being
// deleted: such a one never made an instance elsewhere.
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
