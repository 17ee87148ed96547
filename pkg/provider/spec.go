package provider

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/json"
)

// MaxSpecBytes is the maximum length of a providerSpec. Real providerSpecs are far shorter.
const MaxSpecBytes = 64 << 10

// DecodeSpec decodes a providerSpec into a pointer to a zero struct with the fields apiVersion and kind. It returns an
// InvalidArgument that names the field for another API version or kind, an unknown or repeated field, or a value of the
// wrong type. Field names are case-sensitive.
func DecodeSpec(raw []byte, apiVersion, kind string, into any) error {
	if len(raw) > MaxSpecBytes {
		return Errorf(InvalidArgument, "providerSpec is %d bytes long, more than %d", len(raw), MaxSpecBytes)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return Errorf(InvalidArgument, "providerSpec must be an object of kind %s", kind)
	}
	// Check apiVersion and kind first, because the fields of another kind have another meaning.
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &header); err != nil {
		return decodeError(err)
	}
	if header.APIVersion != apiVersion {
		return InvalidField("apiVersion", "must be %q, not %.64q", apiVersion, header.APIVersion)
	}
	if header.Kind != kind {
		return InvalidField("kind", "must be %q, not %.64q", kind, header.Kind)
	}
	strict, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		return decodeError(err)
	}
	if len(strict) == 0 {
		return nil
	}
	problem := "is not a field of " + kind
	if strings.HasPrefix(strict[0].Error(), "duplicate") {
		problem = "is set twice"
	}
	path := ""
	if field, ok := errors.AsType[json.FieldError](strict[0]); ok {
		// The path contains field names that a user chose. A long name must not fill the message of a condition.
		path = fmt.Sprintf("%.128s", field.FieldPath())
	}
	return InvalidField(path, "%s", problem)
}

// decodeError converts an error of the decoder without its message, which may quote a value.
func decodeError(err error) error {
	wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err)
	if !ok {
		return Errorf(InvalidArgument, "providerSpec is not valid JSON")
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number -5" is a number
	return InvalidField(wrong.Field, "must be of type %s, not %s", wrong.Type, kind)
}
