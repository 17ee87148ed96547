package resolve

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Inputs contains the inputs for creating the instance of a Machine.
type Inputs struct {
	// ClassName and ClassUID identify the class. Both fields are empty for an inline specification.
	ClassName string
	ClassUID  types.UID
	// Provider is the provider of the Machine. Only ResolveForDeletion can return an empty Provider: no object names a
	// provider, so no provider was ever called.
	Provider string
	// ProviderSpec is raw JSON, or empty if it is no longer known.
	ProviderSpec []byte
	// NodeProviderID is the format of Nodes' provider IDs. Empty means the provider's default.
	NodeProviderID string
	// Adoption is the policy of the class, or Forbid for an inline specification.
	Adoption v1beta1.AdoptionPolicy
	// AdoptFrom is a former cluster whose instances Machines of the class may adopt until AdoptFromUntil. The cluster
	// and the time come from annotations of the class.
	AdoptFrom, AdoptFromUntil string
	// CredentialsRef refers to the Secret with Credentials. Nil means that the driver uses the credentials of its
	// environment.
	CredentialsRef *v1beta1.LocalRef
	Credentials    provider.Credentials
	// UserData is the bootstrap template, which may be empty.
	UserData Template
	// CompressUserData means that the user data is compressed after it is rendered.
	CompressUserData bool
	// WaitMessage is a message about a missing finalizer on the class or on the Secret with the credentials. The
	// launch waits for the finalizer, because without class or credentials the instance could not be deleted. If no
	// finalizer is missing, WaitMessage is empty.
	WaitMessage string
	// Leaving holds an error if the class is being deleted, so that no instance may be created. If an instance may be
	// created, Leaving is nil.
	Leaving *Error
}

// Class converts the class to the type that is passed to drivers.
func (r Inputs) Class() provider.Class {
	return provider.Class{Spec: r.ProviderSpec, Credentials: r.Credentials}
}

// SpecHash returns a hash of the providerSpec, regardless of white space and the order of keys. The result has 32
// characters, or is empty without a providerSpec.
func (r Inputs) SpecHash() string {
	if len(r.ProviderSpec) == 0 {
		return ""
	}
	canonical := r.ProviderSpec
	decoder := json.NewDecoder(bytes.NewReader(r.ProviderSpec))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err == nil {
		if encoded, err := json.Marshal(value); err == nil {
			canonical = encoded
		}
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}

// UserDataHash returns a hash of a bootstrap template and its namespace, or "" for an empty template. The hash is
// public and too short to test guesses of a secret in the template.
func UserDataHash(namespace string, template Template) string {
	if len(template) == 0 {
		return ""
	}
	sum := sha256.Sum256(append([]byte(namespace+"\x00"), template...))
	return hex.EncodeToString(sum[:4])
}

// Template is user data with placeholders. Template may contain secrets, so it is printed as "[redacted]".
type Template []byte

const redacted = "[redacted]"

// Format implements fmt.Formatter for every verb.
func (Template) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON implements json.Marshaler.
func (Template) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Template) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (Template) LogValue() slog.Value { return slog.StringValue(redacted) }

// Error says which object is missing or cannot be used. A retry is useless until a watch reports a change of the
// object.
type Error struct {
	// Reason is the condition reason: ClassNotFound, CredentialsNotFound, UserDataNotFound, SecretNotLabelled,
	// ClassDeleting or InvalidConfiguration.
	Reason string
	// Message is a text for users that names the object.
	Message string
	// Forbidden means that this process must not read the object. No event reports a new permission, so callers retry
	// after ForbiddenRetry.
	Forbidden bool
}

// ForbiddenRetry is how long a caller waits before it reads a forbidden object again.
const ForbiddenRetry = time.Minute

// Error returns "Reason: Message".
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

func errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func forbiddenf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Forbidden: true}
}
