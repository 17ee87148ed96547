package simulation

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"machinist.dev/machinist/internal/install/manifests"
)

// longestText is the length of the text that a corruption of the kind ChangeHighest writes. Longer names are not
// valid in Kubernetes.
const longestText = 253

// newValue returns the new value of a field, whether the field is removed, and whether the change is possible.
func (w *World) newValue(all []stored, o stored, path []string, how ChangeKind) (to any, drop, possible bool) {
	now, ok := valueAt(o.content, path)
	if parent, has := valueAt(o.content, path[:len(path)-1]); !ok {
		// If the object lacks the field, the value can come from another object or from an earlier version.
		if _, isMap := parent.(map[string]any); !has || !isMap || how != ChangeOfAnother && how != ChangeEarlier {
			return nil, false, false
		}
	}
	if o.Kind == "Lease" && (how == ChangeEarlier || how == ChangeOther) {
		to, possible = w.leaseValue(o, path, now, how)
		return to, false, possible
	}
	switch how {
	case ChangeDropped:
		return nil, true, true
	case ChangeEmptied:
		to, possible = emptied(now)
	case ChangeOfAnother:
		to, possible = ofAnother(all, o, path, now)
	case ChangeEarlier:
		to, possible = earlierValue(o, path, now)
	case ChangeHighest:
		to, possible = highest(now)
	case ChangeLowest:
		to, possible = lowest(now)
	default:
		to, possible = otherOf(o.Kind, path, now, slices.Index(Hows(), how)-slices.Index(Hows(), ChangeOther)+1)
	}
	return to, false, possible && !sameValue(now, to)
}

func emptied(now any) (any, bool) {
	switch now.(type) {
	case string:
		return "", true
	case int64, float64:
		return int64(0), true
	case bool:
		return false, true
	case map[string]any:
		return map[string]any{}, true
	case []any:
		return []any{}, true
	}
	return nil, false
}

func ofAnother(all []stored, o stored, path []string, now any) (any, bool) {
	for _, other := range all {
		if other.Cluster != o.Cluster || other.Kind != o.Kind ||
			other.Name == o.Name && other.Namespace == o.Namespace {
			continue
		}
		if to, ok := valueAt(other.content, path); ok && !sameValue(to, now) {
			return to, true
		}
	}
	return nil, false
}

func earlierValue(o stored, path []string, now any) (any, bool) {
	if o.earlierVersions == nil {
		return nil, false
	}
	all, err := o.earlierVersions()
	if err != nil {
		return nil, false
	}
	for _, before := range all {
		if to, ok := valueAt(before, path); ok && !sameValue(to, now) {
			return to, true
		}
	}
	return nil, false
}

var duration = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+$`)

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

func highest(now any) (any, bool) {
	switch x := now.(type) {
	case string:
		switch {
		case isTime(x):
			return "9999-12-31T23:59:59Z", true
		case duration.MatchString(x):
			return "2562047h47m16s", true // Within a second of the longest duration.
		}
		return strings.Repeat("x", longestText), true
	case int64:
		return int64(math.MaxInt32), true
	case bool:
		return !x, true
	}
	return nil, false
}

func lowest(now any) (any, bool) {
	switch x := now.(type) {
	case string:
		switch {
		case isTime(x):
			return "1970-01-01T00:00:01Z", true
		case duration.MatchString(x):
			return "0s", true
		}
	case int64:
		return int64(-1), true
	}
	return nil, false
}

var schemas = sync.OnceValue(func() map[string]*apiextensionsv1.JSONSchemaProps {
	out := map[string]*apiextensionsv1.JSONSchemaProps{}
	for _, d := range manifests.CRDs() {
		out[d.Spec.Names.Kind] = d.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return out
})

// otherOf returns the n-th possible value after the current one, if the schema lists the values of the field.
func otherOf(kind string, path []string, now any, n int) (any, bool) {
	text, ok := now.(string)
	if !ok {
		return nil, false
	}
	var values []string
	if s := schemas()[kind]; s != nil {
		for _, name := range path {
			next, ok := s.Properties[name]
			switch {
			case ok:
				s = &next
			case s.Items != nil && s.Items.Schema != nil:
				s = s.Items.Schema
			case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
				s = s.AdditionalProperties.Schema
			default:
				return nil, false
			}
		}
		for _, v := range s.Enum {
			values = append(values, strings.Trim(string(v.Raw), `"`))
		}
	}
	for i, v := range values {
		if v == text && n < len(values) {
			return values[(i+n)%len(values)], true
		}
	}
	return nil, false
}
