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

// A providerSpec cannot refer to Secrets. If an old description refers to a Secret, the converted class contains its
// value. A user who may only create old objects could thus read another user's Secret. The plan therefore hides these
// values and reports a loss for each reference.

// hideSecrets sets c.publishedClass, the class that users see before it is created. converted is the spec without the
// override.
func (p *planner) hideSecrets(ctx context.Context, c *class, converted *v1beta1.MachineClassSpec, facts []byte) error {
	c.publishedClass = c.object
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
		p.plan.findings.addf(provider.FindingLoss, CodeSecretInClass, c.firstObject, part.path, "The value of %s comes from %s, and "+
			"a class cannot refer to a Secret. Everyone who may read the class %s can read the value. Accept this loss, "+
			"or set the field with spec.overrides.", strings.Join(fields[:min(len(fields), maxFields)], ", "), part.secretName, c.name)
	}
	if reflect.DeepEqual(spec, shown) {
		return nil
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return fmt.Errorf("encode class %s: %w", c.name, err)
	}
	c.publishedClass = c.object.DeepCopy()
	c.publishedClass.Spec.ProviderSpec.Raw = raw
	return nil
}

// maxFields limits the fields that a finding names.
const maxFields = 3

// convertedWithout converts the description with other values for one secret part. If a field of the resulting
// providerSpec differs from the original conversion, the original field contains a secret value. If the conversion
// fails, the result is an empty providerSpec.
func (p *planner) convertedWithout(ctx context.Context, c *class, part secretPart, converted *v1beta1.MachineClassSpec,
	facts []byte) (map[string]any, error) {
	spec, credentials := c.description.withPart(part, disguise)
	legacy, err := p.legacyOf(c, spec, credentials)
	if err != nil {
		return nil, err
	}
	imported, err := p.cloud.Import(ctx, provider.ImportRequest{Legacy: legacy, Facts: facts})
	if err != nil {
		return map[string]any{}, nil // Report no error: the user did not write these values.
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

func decoded(c *class, spec *runtime.RawExtension) (map[string]any, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(spec.Raw, &content); err != nil { // Unlike json.Unmarshal, this keeps integers.
		return nil, fmt.Errorf("decode class %s: its providerSpec is not a JSON object", c.name)
	}
	return content, nil
}

// disguise returns a different value, if possible of the same form, so that a driver accepts it. An empty value stays
// empty.
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

// differences returns the paths of the smallest parts of a that are missing or different in b. Maps with different keys
// differ as a whole, because the keys may be secret.
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

func lacksKey(a, b map[string]any) bool {
	for key := range a {
		if _, found := b[key]; !found {
			return true
		}
	}
	return false
}
