package machineset

import (
	"regexp"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// deleteAnnotationLifetime is how long an autoscaler's delete annotation stays on a machine while nothing is scaled
// down. The autoscaler removes it when it could not lower replicas; an older one is from an autoscaler that died in
// between.
const deleteAnnotationLifetime = 15 * time.Minute

// deleteAnnotationLayout is what cluster-autoscaler's clusterapi provider writes: time.Now().String() with its
// monotonic reading, a form that no person would choose. (kubernetes/autoscaler,
// cloudprovider/clusterapi/clusterapi_unstructured.go, MarkMachineForDeletion.)
const deleteAnnotationLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

var monotonicReading = regexp.MustCompile(` m=[+-][0-9]+\.[0-9]+$`)

// autoscalerDeleteAnnotation returns when an autoscaler annotated the machine for deletion; false if the annotation is
// missing or a person's.
func autoscalerDeleteAnnotation(m *v1beta1.Machine) (time.Time, bool) {
	value, ok := m.Annotations[v1beta1.AnnotationDeleteMachine]
	if !ok {
		return time.Time{}, false
	}
	at := monotonicReading.FindStringIndex(value)
	if at == nil {
		return time.Time{}, false
	}
	marked, err := time.Parse(deleteAnnotationLayout, value[:at[0]])
	return marked, err == nil
}

// deleteAnnotationExpiresIn returns for how much longer an autoscaler's delete annotation is valid; false if there is
// none.
func deleteAnnotationExpiresIn(m *v1beta1.Machine, now time.Time) (time.Duration, bool) {
	marked, ok := autoscalerDeleteAnnotation(m)
	if !ok {
		return 0, false
	}
	return marked.Add(deleteAnnotationLifetime).Sub(now), true
}
