package process

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
)

// The recorder passes the action and the related object of an event to the sink in these annotations. The sink
// converts the annotations to fields. client-go's record.EventRecorder has no parameters for the action and the
// related object.
const (
	annotationAction  = "machinist.dev/event-action"
	annotationRelated = "machinist.dev/event-related"
)

// fieldRecorder records events with their action and related object. fieldRecorder implements recorder.EventRecorder.
type fieldRecorder struct {
	to     record.EventRecorder
	scheme *runtime.Scheme
}

// Eventf implements recorder.EventRecorder.
func (r fieldRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, kind, reason, action, note, args...)
}

// AnnotatedEventf implements recorder.EventRecorder.
func (r fieldRecorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason,
	action, note string, args ...any) {
	fields := map[string]string{annotationAction: action}
	maps.Copy(fields, annotations)
	if related != nil {
		if ref, err := reference.GetReference(r.scheme, related); err == nil {
			if text, err := json.Marshal(ref); err == nil {
				fields[annotationRelated] = string(text)
			}
		}
	}
	r.to.AnnotatedEventf(regarding, fields, kind, reason, note, args...)
}

// fieldSink writes events with the fields that fieldRecorder put into annotations.
type fieldSink struct{ record.EventSink }

// Create implements record.EventSink.
func (s fieldSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Create(withFields(e))
}

// Update implements record.EventSink.
func (s fieldSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Update(withFields(e))
}

func withFields(e *corev1.Event) *corev1.Event {
	e = e.DeepCopy()
	e.Action = e.Annotations[annotationAction]
	if text, found := e.Annotations[annotationRelated]; found {
		related := &corev1.ObjectReference{}
		if err := json.Unmarshal([]byte(text), related); err == nil {
			e.Related = related
		}
	}
	delete(e.Annotations, annotationAction)
	delete(e.Annotations, annotationRelated)
	if len(e.Annotations) == 0 {
		e.Annotations = nil
	}
	return e
}
