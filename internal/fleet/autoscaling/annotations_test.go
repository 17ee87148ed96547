package autoscaling

import (
	"maps"
	"testing"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: capacity-annotations-of-people-stay.
func TestAnnotationsDiffer(t *testing.T) {
	const cpu, memory, gpus = v1beta1.AutoscalerCPUAnnotation, v1beta1.AutoscalerMemoryAnnotation,
		v1beta1.AutoscalerGPUCountAnnotation
	ours := map[string]string{cpu: "4", memory: "16Gi"}
	for name, test := range map[string]struct {
		change map[string]string
		others map[string]string
		want   bool
	}{
		"equal":                           {},
		"another annotation":              {change: map[string]string{"team": "a"}},
		"another value":                   {change: map[string]string{cpu: "2"}, want: true},
		"another value of a person":       {change: map[string]string{cpu: "2"}, others: map[string]string{cpu: "2"}},
		"unwanted annotation":             {change: map[string]string{gpus: "1"}, want: true},
		"unwanted annotation of a person": {change: map[string]string{gpus: "1"}, others: map[string]string{gpus: "1"}},
	} {
		annotations := maps.Clone(ours)
		maps.Copy(annotations, test.change)
		if got := annotationsDiffer(annotations, ours, test.others); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	if !annotationsDiffer(map[string]string{memory: "16Gi"}, ours, nil) {
		t.Error("a missing annotation does not differ")
	}
}
