package machineset

import (
	"regexp"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// deleteAnnotationLifetime is the time after which an autoscaler's delete annotation is removed if the autoscaler has
// not scaled the set down. An autoscaler that was terminated does not remove the annotation itself.
const deleteAnnotationLifetime = 15 * time.Minute

// deleteAnnotationLayout is the format of cluster-autoscaler's annotation: time.Now().String() with its monotonic clock
// reading, which no administrator writes. See MarkMachineForDeletion in kubernetes/autoscaler,
// cloudprovider/clusterapi/clusterapi_unstructured.go.
const deleteAnnotationLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

var monotonicReading = regexp.MustCompile(` m=[+-][0-9]+\.[0-9]+$`)

// autoscalerDeleteAnnotation returns the time at which an autoscaler added the delete annotation to the machine. It
// returns false if the machine has no such annotation.
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

// deleteAnnotationExpiresIn returns the remaining lifetime of an autoscaler's delete annotation, or false without one.
func deleteAnnotationExpiresIn(m *v1beta1.Machine, now time.Time) (time.Duration, bool) {
	marked, ok := autoscalerDeleteAnnotation(m)
	if !ok {
		return 0, false
	}
	return marked.Add(deleteAnnotationLifetime).Sub(now), true
}
