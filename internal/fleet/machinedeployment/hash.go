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

// hashVersion is the version of TemplateHash, recorded on every set for information. Sets are matched by rolloutFields
// and not by the hash, so another version causes no rollout.
const hashVersion = "1"

// Template is the part of a set or deployment that defines its revision.
type Template struct {
	Spec *v1beta1.MachineSpec
	// Placement names the classes if Spec does not. Only the set of its classes belongs to the revision.
	Placement *v1beta1.Placement
}

// TemplateOf returns the template of a deployment.
func TemplateOf(d *v1beta1.MachineDeployment) Template {
	return Template{Spec: &d.Spec.Template.Spec, Placement: d.Spec.Placement}
}

// TemplateOfSet returns the template of a set.
func TemplateOfSet(set *v1beta1.MachineSet) Template {
	return Template{Spec: &set.Spec.Template.Spec, Placement: set.Spec.Placement}
}

// rolloutFields holds the fields of a template whose change creates a new revision. The values are canonical: they are
// equal exactly if the templates need the same machines.
type rolloutFields struct {
	Provider     string `json:"provider,omitempty"`
	ProviderSpec string `json:"providerSpec,omitempty"` // canonical
	Class        string `json:"class,omitempty"`
	Version      string `json:"version,omitempty"`
	UserData     string `json:"userData,omitempty"`
	UserDataKey  string `json:"userDataKey,omitempty"`
	Classes      string `json:"classes,omitempty"` // of the placement, sorted
}

func rolloutFieldsOf(t Template) rolloutFields {
	spec := t.Spec
	r := rolloutFields{Provider: spec.Provider, Version: spec.Version, Classes: classesOf(t.Placement)}
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

// classesOf returns the names of the placement's classes, sorted and separated by commas.
func classesOf(p *v1beta1.Placement) string {
	names := p.ClassNames()
	slices.Sort(names)
	return strings.Join(names, ",")
}

// SameRevision reports whether a change from one template to the other would replace no machines.
func SameRevision(a, b Template) bool {
	// Compare the bytes first: comparing the meaning is expensive, and the API server returns equal objects as equal
	// bytes.
	if a.Spec.ProviderSpec != nil && b.Spec.ProviderSpec != nil &&
		bytes.Equal(a.Spec.ProviderSpec.Raw, b.Spec.ProviderSpec.Raw) {
		x, y := *a.Spec, *b.Spec
		x.ProviderSpec, y.ProviderSpec = nil, nil
		a.Spec, b.Spec = &x, &y
	}
	return rolloutFieldsOf(a) == rolloutFieldsOf(b)
}

// TemplateHash returns the hash of a revision: at most 9 characters, without vowels. rolloutAfter is a time in the past
// or zero. collisions is the number of earlier hashes that another template already uses.
func TemplateHash(t Template, rolloutAfter time.Time, collisions int32) string {
	hashed := struct {
		HashVersion  string `json:"hashVersion"`
		Collisions   int32  `json:"collisions,omitempty"`
		RolloutAfter string `json:"rolloutAfter,omitempty"`
		rolloutFields
	}{HashVersion: hashVersion, Collisions: collisions, rolloutFields: rolloutFieldsOf(t)}
	if !rolloutAfter.IsZero() {
		hashed.RolloutAfter = rolloutAfter.UTC().Format(time.RFC3339)
	}
	text, _ := json.Marshal(hashed)
	sum := sha256.Sum256(text)
	return encodeHash(binary.BigEndian.Uint64(sum[:8]))
}

// encodeHash encodes a number as 9 characters, without vowels and without characters that look alike.
func encodeHash(n uint64) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, v1beta1.MaxTemplateHashLength)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}

// canonical returns JSON with sorted keys, without white space, and with uniform strings and numbers. It returns
// invalid JSON unchanged.
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

// canonicalNumber returns a JSON number as digits and a power of ten. A conversion to float64 would lose precision.
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
