package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// A providerSpec cannot refer to Secrets. If a field of an old description refers to a Secret, the converted class
// contains the value from the Secret. So a user who may only create old objects could make the value of another user's
// Secret readable. Therefore the plan shows such a class without the values, and reports a loss for each reference to a
// Secret.

// hideSecrets sets c.shown, the form of the class that users see before the class is created. converted is the spec of
// the class before the override was applied.
func (p *planner) hideSecrets(ctx context.Context, c *class, converted *v1beta1.MachineClassSpec, facts []byte) error {
	c.shown = c.object
	spec, err := decoded(c, c.object.Spec.ProviderSpec)
	if err != nil {
		return err
	}
	shown := runtime.DeepCopyJSON(spec)
	for _, part := range c.description.secrets {
		other, err := p.convertedWithout(ctx, c, part, converted, facts)
		if err != nil {
			return err
		}
		paths := differences(spec, other, nil)
		if len(paths) == 0 {
			continue
		}
		var fields []string
		for _, path := range paths {
			setPath(shown, path, redacted)
			fields = append(fields, "providerSpec."+strings.Join(path, "."))
		}
		p.plan.findings.addf(provider.FindingLoss, CodeSecretInClass, c.from, part.path, "The value of %s comes from %s, and "+
			"a class cannot refer to a Secret. Everyone who may read the class %s can read the value. Accept that, or set the "+
			"field with spec.overrides.", strings.Join(fields[:min(len(fields), maxFields)], ", "), part.from, c.name)
	}
	if reflect.DeepEqual(spec, shown) {
		return nil
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return fmt.Errorf("encode class %s: %w", c.name, err)
	}
	c.shown = c.object.DeepCopy()
	c.shown.Spec.ProviderSpec.Raw = raw
	return nil
}

// maxFields is the maximum number of fields that a finding names.
const maxFields = 3

// convertedWithout converts the description after the values in one part were replaced by other values. It returns the
// resulting providerSpec. Each difference between this providerSpec and the real one comes from the replaced values. If
// the driver cannot convert the changed description, convertedWithout returns an empty providerSpec, which differs from
// the real one in each field.
func (p *planner) convertedWithout(ctx context.Context, c *class, part secretPart, converted *v1beta1.MachineClassSpec,
	facts []byte) (map[string]any, error) {
	spec, credentials := c.description.withPart(part, disguise)
	legacy, err := p.legacyOf(c, spec, credentials)
	if err != nil {
		return nil, err
	}
	imported, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: legacy, Facts: facts})
	if err != nil {
		return map[string]any{}, nil // Report no error, because the user did not write these values and cannot correct them.
	}
	other := *converted.DeepCopy()
	other.ProviderSpec = &runtime.RawExtension{Raw: imported.Spec}
	if i := p.overrideOf(c); i >= 0 {
		if patched, problem := p.patched(other, p.migration.Spec.Overrides[i].Patch.Raw); problem == "" {
			other = patched
		}
	}
	return decoded(c, other.ProviderSpec)
}

// decoded returns the decoded JSON of a providerSpec of the class.
func decoded(c *class, spec *runtime.RawExtension) (map[string]any, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(spec.Raw, &content); err != nil { // Unlike json.Unmarshal, this keeps integers.
		return nil, fmt.Errorf("decode class %s: its providerSpec is not a JSON object", c.name)
	}
	return content, nil
}

// disguise returns a value that differs from the given value. If possible, the new value has the same form, so that a
// driver accepts it as well. An empty value stays empty.
func disguise(value string) string {
	switch value {
	case "true":
		return "false"
	case "false":
		return "true"
	}
	other := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		case r >= '0' && r <= '9':
			return '0' + (r-'0'+5)%10
		case r > unicode.MaxASCII:
			return 'x'
		}
		return r
	}, value)
	if other == value && value != "" {
		return other + "x" // The value consists of punctuation.
	}
	return other
}

// differences returns the paths of the smallest parts of a that are missing in b or differ from b. If two maps have
// different keys, the differing part is the whole map, because the keys may contain the values.
func differences(a, b any, path []string) (all [][]string) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok && (len(path) == 0 || !lacksKey(a, b) || !lacksKey(b, a)) {
			for _, key := range slices.Sorted(maps.Keys(a)) {
				all = append(all, differences(a[key], b[key], append(slices.Clone(path), key))...)
			}
			return all
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				all = append(all, differences(a[i], b[i], append(slices.Clone(path), strconv.Itoa(i)))...)
			}
			return all
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return [][]string{path}
}

// lacksKey reports whether a has a key that b does not have.
func lacksKey(a, b map[string]any) bool {
	for key := range a {
		if _, found := b[key]; !found {
			return true
		}
	}
	return false
}
