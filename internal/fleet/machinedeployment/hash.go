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

// hashVersion names the algorithm of TemplateHash. It is recorded on every set, for people: a set is found by comparing
// what rolls, never by its hash, so another algorithm or another field here makes no revision of its own.
const hashVersion = "1"

// rolling is the part of a template whose change makes a new revision, in a form that is equal if and only if the
// meaning is.
type rolling struct {
	Provider     string `json:"provider,omitempty"`
	ProviderSpec string `json:"providerSpec,omitempty"` // canonical
	Class        string `json:"class,omitempty"`
	Version      string `json:"version,omitempty"`
	UserData     string `json:"userData,omitempty"`
	UserDataKey  string `json:"userDataKey,omitempty"`
}

func rollingOf(spec *v1beta1.MachineSpec) rolling {
	r := rolling{Provider: spec.Provider, Version: spec.Version}
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

// sameRevision reports whether machines of the two specs need not be exchanged for one another.
func sameRevision(a, b *v1beta1.MachineSpec) bool {
	// The API server gives equal objects in equal bytes, so the costly comparison is rarely needed.
	if a.ProviderSpec != nil && b.ProviderSpec != nil && bytes.Equal(a.ProviderSpec.Raw, b.ProviderSpec.Raw) {
		x, y := *a, *b
		x.ProviderSpec, y.ProviderSpec = nil, nil
		a, b = &x, &y
	}
	return rollingOf(a) == rollingOf(b)
}

// TemplateHash names a revision: at most 9 characters of an alphabet that forms no words. rolloutAfter is a time that
// is past, or zero; collisions is how many names before this one were taken by other templates.
func TemplateHash(spec *v1beta1.MachineSpec, rolloutAfter time.Time, collisions int32) string {
	hashed := struct {
		HashVersion  string `json:"hashVersion"`
		Collisions   int32  `json:"collisions,omitempty"`
		RolloutAfter string `json:"rolloutAfter,omitempty"`
		rolling
	}{HashVersion: hashVersion, Collisions: collisions, rolling: rollingOf(spec)}
	if !rolloutAfter.IsZero() {
		hashed.RolloutAfter = rolloutAfter.UTC().Format(time.RFC3339)
	}
	// Strings and numbers always marshal.
	text, _ := json.Marshal(hashed)
	sum := sha256.Sum256(text)
	return word(binary.BigEndian.Uint64(sum[:8]))
}

// word spells a number in 9 letters and digits without vowels and without those that are mistaken for one another.
func word(n uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, v1beta1.MaxTemplateHashLength)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}

// canonical returns JSON in one form for one meaning: keys sorted, no space, strings unescaped and escaped again,
// numbers by their value. What is not JSON is returned as it is.
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
	quoted, _ := json.Marshal(text) // a string always marshals
	b.Write(quoted)
}

// canonicalNumber writes a JSON number as its significant digits and a power of ten, without computing with it: values
// beyond any machine type keep their precision, and huge exponents cost nothing.
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
