package provider

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/json"
)

// MaxSpecBytes bounds a providerSpec; it is far above any that means something.
const MaxSpecBytes = 64 << 10

// DecodeSpec reads a providerSpec into a pointer to a zero struct, which has the fields apiVersion and kind itself. It
// returns an InvalidArgument that names the field for another API version or kind, for a field that is unknown or there
// twice (names are case-sensitive), and for a value of another type.
func DecodeSpec(raw []byte, apiVersion, kind string, into any) error {
	if len(raw) > MaxSpecBytes {
		return Errorf(InvalidArgument, "providerSpec is %d bytes long, more than %d", len(raw), MaxSpecBytes)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return Errorf(InvalidArgument, "providerSpec must be an object of kind %s", kind)
	}
	// What it claims to be comes first: of another kind, the fields mean nothing.
	var is struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &is); err != nil {
		return decodeError(err)
	}
	if is.APIVersion != apiVersion {
		return InvalidField("apiVersion", "must be %q, not %.64q", apiVersion, is.APIVersion)
	}
	if is.Kind != kind {
		return InvalidField("kind", "must be %q, not %.64q", kind, is.Kind)
	}
	strict, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		return decodeError(err)
	}
	if len(strict) == 0 {
		return nil
	}
	what := "is not a field of " + kind
	if strings.HasPrefix(strict[0].Error(), "duplicate") {
		what = "is there twice"
	}
	path := ""
	if field, ok := errors.AsType[json.FieldError](strict[0]); ok {
		// Somebody made it up: it must not fill a condition's message.
		path = fmt.Sprintf("%.128s", field.FieldPath())
	}
	return InvalidField(path, "%s", what)
}

// decodeError does not repeat what the decoder says: it may quote the value.
func decodeError(err error) error {
	wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err)
	if !ok {
		return Errorf(InvalidArgument, "providerSpec is not valid JSON")
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number -5" is a number
	return InvalidField(wrong.Field, "must be of type %s, not %s", wrong.Type, kind)
}
