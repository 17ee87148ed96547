package autoscaling

import (
	"testing"

	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: replicas-left-out-are-kept.
func TestReplicas(t *testing.T) {
	bounds := func(smallest, largest string) map[string]string {
		annotations := map[string]string{}
		if smallest != "" {
			annotations[v1beta1.AutoscalerMinSizeAnnotation] = smallest
		}
		if largest != "" {
			annotations[v1beta1.AutoscalerMaxSizeAnnotation] = largest
		}
		return annotations
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		current     *int32
		want        int32
	}{
		"new":                                 {nil, nil, 1},
		"new, with a smallest size":           {bounds("3", "10"), nil, 3},
		"new, within the bounds":              {bounds("0", "10"), nil, 1},
		"new, with both bounds 0":             {bounds("0", "0"), nil, 0},
		"new, with one bound":                 {bounds("5", ""), nil, 5},
		"new, with invalid bounds":            {bounds("many", "-1"), nil, 1},
		"new, with a bound above the maximum": {bounds("99999999999", ""), nil, 100000},
		"existing":                            {nil, ptr.To[int32](5), 5},
		"existing, outside the bounds":        {bounds("7", "10"), ptr.To[int32](5), 5},
		"existing, with no machines":          {bounds("3", "10"), ptr.To[int32](0), 0},
	} {
		if got := Replicas(test.annotations, test.current); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
