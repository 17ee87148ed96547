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

// Resolved contains everything from which the instance of a Machine is created.
type Resolved struct {
	// ClassName and ClassUID identify the class. They are empty for an inline specification.
	ClassName string
	ClassUID  types.UID
	// Provider is the provider that serves the Machine. It is empty only after ResolveForDeletion, if no class, Machine or
	// recorded instance names a provider. In this case, no provider has ever been called for the Machine.
	Provider string
	// ProviderSpec is raw JSON. It is empty if it is no longer known.
	ProviderSpec []byte
	// NodeProviderID is the format of the provider IDs of Nodes. Empty means the default format of the provider.
	NodeProviderID string
	// Adoption is the policy of the class. For an inline specification it is Forbid.
	Adoption v1beta1.AdoptionPolicy
	// AdoptFrom names a former cluster. Until AdoptFromUntil, Machines of the class may adopt instances of this
	// cluster. Both values are annotations of the class.
	AdoptFrom, AdoptFromUntil string
	// CredentialsRef is the reference to the Secret with Credentials. Nil means that the driver uses credentials of its
	// own environment.
	CredentialsRef *v1beta1.LocalRef
	Credentials    provider.Credentials
	// UserData is the bootstrap template. It is empty if neither the Machine nor its class refers to a bootstrap template.
	UserData Template
	// CompressUserData means that the user data is compressed after it is rendered.
	CompressUserData bool
	// Awaited describes the finalizers that are still missing on the class and on the Secret with the credentials.
	// Both objects must exist while the Machine exists, because its instance cannot be deleted without them.
	// Awaited is empty if both objects are protected.
	Awaited string
	// Leaving is the error for a class that is being deleted and no longer serves, so that no instance may be
	// created from it. It is nil while instances can be created from the class.
	Leaving *Error
}

// Class returns the class in the form that drivers receive.
func (r Resolved) Class() provider.Class {
	return provider.Class{Spec: r.ProviderSpec, Credentials: r.Credentials}
}

// SpecHash returns a hash of the providerSpec that does not depend on white space or the order of keys. It is 32
// characters long, or empty if there is no providerSpec.
func (r Resolved) SpecHash() string {
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

// UserDataHash returns a hash that distinguishes the bootstrap templates of a namespace. It is empty for an empty
// template. The hash is public. The hash is so short that it cannot be used to test guesses of a secret in the
// template.
func UserDataHash(namespace string, template Template) string {
	if len(template) == 0 {
		return ""
	}
	sum := sha256.Sum256(append([]byte(namespace+"\x00"), template...))
	return hex.EncodeToString(sum[:4])
}

// Template is a bootstrap template. The value may contain secrets, so it is printed as "[redacted]".
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

// Error explains which object is missing or why it cannot be used. A retry returns the same error until a watch
// reports that the object has changed.
type Error struct {
	// Reason is the reason of the condition that reports the error. It is one of ClassNotFound, CredentialsNotFound,
	// UserDataNotFound, SecretNotLabelled, ClassDeleting and InvalidConfiguration.
	Reason string
	// Message is a text for users that names the object.
	Message string
	// Forbidden is true if the API server does not permit this process to read the object. No event reports that
	// the permission was granted, so callers try again after ForbiddenRetry.
	Forbidden bool
}

// ForbiddenRetry is how long a caller waits before it again reads an object that this process was not permitted to
// read.
const ForbiddenRetry = time.Minute

// Error returns "Reason: Message".
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

func errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func forbiddenf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Forbidden: true}
}
