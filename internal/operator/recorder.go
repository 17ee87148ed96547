package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// Of one object, a recorder keeps eventBurst events at once, and one more every 1/eventsPerSecond: a loop that fails
// must not fill the API server, and a rollout of a thousand machines must be reported completely.
const (
	eventBurst      = 250
	eventsPerSecond = 0.1
)

// newBroadcaster makes what writes events. Those that differ in their text only are different events. The recorders
// of events.k8s.io count such as repeats of the first, and what they say is lost; here that is so of none, and where
// more than ten come within ten minutes they are one whose text is that of the last, and says that it stands for
// others.
func newBroadcaster() record.EventBroadcaster {
	return record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst,
		QPS: eventsPerSecond})
}

// ownManager is a manager of which the probes and the events are ours.
type ownManager struct {
	manager.Manager
	probes *probes
	events record.EventBroadcaster
}

// GetEventRecorder implements manager.Manager. The recorder ignores actions and related objects.
func (m ownManager) GetEventRecorder(name string) recorder.EventRecorder {
	return record.NewEventRecorderAdapter(m.events.NewRecorder(m.GetScheme(), corev1.EventSource{Component: name}))
}
