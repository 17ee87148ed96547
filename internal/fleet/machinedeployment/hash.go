package machinedeployment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// hashVersion is the version of the algorithm of TemplateHash. The version is recorded on every set, but only for
// information. The set of a template is found by comparing rolloutFields, never by its hash. Therefore a change of
// the algorithm does not create a new revision.
const hashVersion = "1"

// rolloutFields contains the fields of a template that define a revision: a change of one of them creates a new
// revision. Two values of rolloutFields are equal if and only if they have the same meaning.
type rolloutFields struct {
	Provider     string `json:"provider,omitempty"`
	ProviderSpec string `json:"providerSpec,omitempty"` // canonical
	Class        string `json:"class,omitempty"`
	Version      string `json:"version,omitempty"`
	UserData     string `json:"userData,omitempty"`
	UserDataKey  string `json:"userDataKey,omitempty"`
}

func rolloutFieldsOf(spec *v1beta1.MachineSpec) rolloutFields {
	r := rolloutFields{Provider: spec.Provider, Version: spec.Version}
	if spec.ClassRef != nil {
		r.Class = spec.ClassRef.Name
	}
	if spec.UserDataRef != nil {
		r.UserData, r.UserDataKey = spec.UserDataRef.Name, spec.UserDataRef.KeyOrDefault()
	}
	if spec.ProviderSpec != nil {
		r.ProviderSpec = canonical(spec.ProviderSpec.Raw)
	}
	return r
}

// sameRevision reports whether two specs belong to the same revision, so that a rollout from one to the other would
// replace no machines.
func sameRevision(a, b *v1beta1.MachineSpec) bool {
	// The API server returns equal objects as equal bytes, so the comparison of the meaning, which is expensive, is
	// rarely needed.
	if a.ProviderSpec != nil && b.ProviderSpec != nil && bytes.Equal(a.ProviderSpec.Raw, b.ProviderSpec.Raw) {
		x, y := *a, *b
		x.ProviderSpec, y.ProviderSpec = nil, nil
		a, b = &x, &y
	}
	return rolloutFieldsOf(a) == rolloutFieldsOf(b)
}

// TemplateHash returns the hash of a revision. It has at most 9 characters, from an alphabet that forms no words. The
// parameter rolloutAfter is a time in the past or zero, and collisions is the number of earlier hashes that collided
// with the hash of another template.
func TemplateHash(spec *v1beta1.MachineSpec, rolloutAfter time.Time, collisions int32) string {
	hashed := struct {
		HashVersion  string `json:"hashVersion"`
		Collisions   int32  `json:"collisions,omitempty"`
		RolloutAfter string `json:"rolloutAfter,omitempty"`
		rolloutFields
	}{HashVersion: hashVersion, Collisions: collisions, rolloutFields: rolloutFieldsOf(spec)}
	if !rolloutAfter.IsZero() {
		hashed.RolloutAfter = rolloutAfter.UTC().Format(time.RFC3339)
	}
	// Strings and numbers always marshal.
	text, _ := json.Marshal(hashed)
	sum := sha256.Sum256(text)
	return encodeHash(binary.BigEndian.Uint64(sum[:8]))
}

// encodeHash encodes a number as 9 letters and digits, without vowels and without characters that are easily confused.
func encodeHash(n uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, v1beta1.MaxTemplateHashLength)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}

// canonical returns JSON in a canonical form: with sorted keys, without white space, with strings escaped in one way,
// and with numbers by their value. It returns text that is not JSON unchanged.
func canonical(raw []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return string(raw)
	}
	var b strings.Builder
	writeCanonical(&b, value)
	return b.String()
}

func writeCanonical(b *strings.Builder, value any) {
	switch v := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		b.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			writeQuoted(b, key)
			b.WriteByte(':')
			writeCanonical(b, v[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, item)
		}
		b.WriteByte(']')
	case json.Number:
		b.WriteString(canonicalNumber(string(v)))
	case string:
		writeQuoted(b, v)
	default: // true, false, null
		fmt.Fprint(b, v)
	}
}

func writeQuoted(b *strings.Builder, text string) {
	quoted, _ := json.Marshal(text) // A string always marshals.
	b.Write(quoted)
}

// canonicalNumber returns a JSON number as its significant digits and a power of ten. It does not convert the
// number to a binary number, so that the value keeps its precision and a huge exponent does not need much memory.
func canonicalNumber(number string) string {
	mantissa, exponentText, _ := strings.Cut(strings.ToLower(number), "e")
	digits, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	var exponent int64
	if exponentText != "" {
		var err error
		if exponent, err = strconv.ParseInt(exponentText, 10, 32); err != nil {
			return number
		}
	}
	significant := strings.TrimRight(digits, "0")
	exponent += int64(len(digits)-len(significant)) - int64(len(fraction))
	sign := ""
	if negative {
		sign = "-"
	}
	return fmt.Sprintf("%s%se%d", sign, significant, exponent)
}
