package resolve

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Resolved is what a Machine is made from.
type Resolved struct {
	// ClassName and ClassUID are those of the class; empty for the inline form.
	ClassName string
	ClassUID  types.UID
	// Provider serves the Machine. It is empty only after ResolveForDeletion, where neither a class, nor the Machine, nor
	// a recorded instance names one: then nothing was ever asked of any provider by this specification.
	Provider string
	// ProviderSpec is raw JSON; empty where it is no longer known.
	ProviderSpec []byte
	// NodeProviderID is the form of the provider IDs of Nodes, empty where it is the provider's.
	NodeProviderID string
	// Adoption is the class's; the inline form always forbids.
	Adoption v1beta1.AdoptionPolicy
	// AdoptFrom is the former cluster from which the class lets its Machines take instances over until AdoptFromUntil, as
	// its annotations say.
	AdoptFrom, AdoptFromUntil string
	// CredentialsRef is where Credentials came from; nil where the driver uses those of its own environment.
	CredentialsRef *v1beta1.LocalRef
	Credentials    provider.Credentials
	// UserData is the bootstrap template; empty where there is none referred to.
	UserData Template
	// CompressUserData has the user data compressed after it is rendered.
	CompressUserData bool
	// Awaited says what is missing before the class and the Secret with the credentials are sure to stay as long as the
	// Machine; empty where nothing is. Without them an instance could not be deleted.
	Awaited string
	// Leaving says why no instance is created from the class any more; nil while it serves.
	Leaving *Error
}

// Class is what the driver is given.
func (r Resolved) Class() provider.Class {
	return provider.Class{Spec: r.ProviderSpec, Credentials: r.Credentials}
}

// SpecHash is equal for providerSpecs that mean the same: the order of keys and white space do not count. It is 32
// characters long, and empty where there is no providerSpec.
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

// UserDataHash tells one bootstrap template of a namespace from another; it is empty where there is none. It is public,
// so it is too short for anybody to confirm a guess of the secrets in the template.
func UserDataHash(namespace string, template Template) string {
	if len(template) == 0 {
		return ""
	}
	sum := sha256.Sum256(append([]byte(namespace+"\x00"), template...))
	return hex.EncodeToString(sum[:4])
}

// Template is a bootstrap template. People put secrets into them, so it prints as "[redacted]".
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

// Error says what is missing or refused. Trying again is pointless until it changes; the watches see that.
type Error struct {
	// Reason is that of the condition that shows it: ClassNotFound, CredentialsNotFound, UserDataNotFound,
	// SecretNotLabelled or InvalidConfiguration.
	Reason string
	// Message is for people and names the object.
	Message string
}

// Error returns "Reason: message".
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

func errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
