package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/timeline"
	"machinist.dev/machinist/internal/cli/why"
)

// timeline returns the timeline of a machine. The machine is identified by its own name, or for the kind node by the
// name of its Node.
func (e *explainer) timeline(ctx context.Context, k kind, name string) (timeline.Timeline, error) {
	m, err := e.theMachine(ctx, k, name)
	if err != nil {
		return timeline.Timeline{}, err
	}
	events, err := e.eventsOf(ctx, m)
	switch {
	case apierrors.IsForbidden(err):
		e.unread = append(e.unread, "You may not list events.")
	case err != nil:
		e.unread = append(e.unread, fmt.Sprintf("The machine's events could not be listed: %v", err))
	}
	return e.timelineOf(ctx, m, events, err != nil), nil
}

// timelineOf returns the timeline of a machine. unread is true if the events could not be listed.
func (e *explainer) timelineOf(ctx context.Context, m *v1beta1.Machine, events []why.Event,
	unread bool) timeline.Timeline {
	o := timeline.Facts{Machine: m, Node: e.nodeOf(ctx, m), Events: events, EventsUnread: unread}
	if set, deployment := e.ownersOf(ctx, m); deployment != nil {
		if newest := e.newestSet(ctx, deployment); newest != nil && newest.UID != set.UID {
			o.Newest, o.Deployment = newest, deployment
		}
	}
	o.Now, o.ReadErrors = e.clock.Now(), e.unread
	return timeline.New(o)
}

// nodeOf gets the Node of the machine. It returns nil if the Node is in another cluster.
func (e *explainer) nodeOf(ctx context.Context, m *v1beta1.Machine) *corev1.Node {
	ref := m.Status.NodeRef
	if ref == nil {
		return nil
	}
	found := &corev1.Node{}
	if err := e.Get(ctx, client.ObjectKey{Name: ref.Name}, found); err != nil || found.UID != ref.UID {
		return nil
	}
	return found
}

func (e *explainer) eventsOf(ctx context.Context, m *v1beta1.Machine) ([]why.Event, error) {
	list, err := e.eventsAbout(ctx, m)
	if err != nil {
		return nil, err
	}
	found := make([]why.Event, 0, len(list))
	for i := range list {
		found = append(found, eventOf(&list[i]))
	}
	return found, nil
}

func (e *explainer) eventsAbout(ctx context.Context, o client.Object) ([]corev1.Event, error) {
	if e.listEvents != nil {
		return e.listEvents(ctx, o)
	}
	var list corev1.EventList
	err := e.List(ctx, &list, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{"involvedObject.uid": string(o.GetUID())})
	return list.Items, err
}

// eventOf converts an event. The two events APIs of Kubernetes store times and counts in different fields.
func eventOf(e *corev1.Event) why.Event {
	first := e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	out := why.Event{First: first, Last: e.LastTimestamp.Time, Count: e.Count, Warning: e.Type == corev1.EventTypeWarning,
		Reason: e.Reason, Message: e.Message, Reporter: e.ReportingController}
	if e.Series != nil {
		out.Last, out.Count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	if out.Last.IsZero() {
		out.Last = first
	}
	// Conditions have whole seconds. Truncate event times, so that an event is not later than a simultaneous condition.
	out.First, out.Last = out.First.Truncate(time.Second), out.Last.Truncate(time.Second)
	return out
}

func (e *explainer) newestSet(ctx context.Context, d *v1beta1.MachineDeployment) *v1beta1.MachineSet {
	var sets v1beta1.MachineSetList
	if err := e.List(ctx, &sets, client.InNamespace(d.Namespace)); err != nil {
		e.unread = append(e.unread, fmt.Sprintf("The sets of the machine's deployment could not be listed: %v", err))
		return nil
	}
	var newest *v1beta1.MachineSet
	revision := int64(-1)
	for i := range sets.Items {
		s := &sets.Items[i]
		n, err := strconv.ParseInt(s.Annotations[v1beta1.AnnotationRevision], 10, 64)
		if err == nil && n > revision && metav1.IsControlledBy(s, d) {
			newest, revision = s, n
		}
	}
	return newest
}
