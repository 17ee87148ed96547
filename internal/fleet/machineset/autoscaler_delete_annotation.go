package machineset

import (
	"regexp"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// deleteAnnotationLifetime is how long an autoscaler's delete annotation stays on a machine if no scale-down
// follows. If the autoscaler cannot lower replicas, it removes the annotation itself, unless it is terminated
// before that.
const deleteAnnotationLifetime = 15 * time.Minute

// deleteAnnotationLayout is the format in which cluster-autoscaler's clusterapi provider writes the annotation. It is
// the result of time.Now().String(), which includes the monotonic clock reading. No administrator would write such
// a value by hand. See MarkMachineForDeletion in kubernetes/autoscaler,
// cloudprovider/clusterapi/clusterapi_unstructured.go.
const deleteAnnotationLayout = "2006-01-02 15:04:05.999999999 -0700 MST"

var monotonicReading = regexp.MustCompile(` m=[+-][0-9]+\.[0-9]+$`)

// autoscalerDeleteAnnotation returns the time at which an autoscaler annotated the machine for deletion. It returns
// false if the annotation is missing or was not written by an autoscaler.
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

// deleteAnnotationExpiresIn returns the remaining lifetime of an autoscaler's delete annotation. It returns false if
// there is no such annotation.
func deleteAnnotationExpiresIn(m *v1beta1.Machine, now time.Time) (time.Duration, bool) {
	marked, ok := autoscalerDeleteAnnotation(m)
	if !ok {
		return 0, false
	}
	return marked.Add(deleteAnnotationLifetime).Sub(now), true
}
