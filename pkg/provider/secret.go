package provider

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

const redacted = "[redacted]"

// Secret holds bytes that must not be printed. Formatting or encoding a Secret always produces "[redacted]". Only
// Reveal returns the content.
type Secret struct{ data []byte }

// NewSecret returns a Secret with the given content. It does not copy the slice.
func NewSecret(data []byte) Secret { return Secret{data: data} }

// Reveal returns the content. The caller must not change it.
func (s Secret) Reveal() []byte { return s.data }

// IsEmpty reports whether the Secret has no content.
func (s Secret) IsEmpty() bool { return len(s.data) == 0 }

// Format implements fmt.Formatter for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// Credentials are the entries of a credentials Secret. Like Secret, they are printed as "[redacted]".
type Credentials struct {
	data      map[string][]byte
	namespace string
}

// NewCredentials returns Credentials with the data of a Secret. It does not copy the map.
func NewCredentials(data map[string][]byte) Credentials { return Credentials{data: data} }

// InNamespace returns a copy of the Credentials with the namespace of the Secret that contains them.
func (c Credentials) InNamespace(namespace string) Credentials {
	c.namespace = namespace
	return c
}

// Namespace returns the namespace of the Secret. For credentials without a secret, a driver may use the identity of its
// own process instead. Such a driver decides by the namespace whether it trusts the credentials.
func (c Credentials) Namespace() string { return c.namespace }

// Get returns the entry with the given key, and whether it exists.
func (c Credentials) Get(key string) (Secret, bool) {
	v, ok := c.data[key]
	return Secret{data: v}, ok
}

// Keys returns the names of the entries, sorted. Names are not secret.
func (c Credentials) Keys() []string { return slices.Sorted(maps.Keys(c.data)) }

// IsEmpty reports whether there are no entries.
func (c Credentials) IsEmpty() bool { return len(c.data) == 0 }

// Format implements fmt.Formatter for every verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON implements json.Marshaler.
func (c Credentials) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(redacted) }
