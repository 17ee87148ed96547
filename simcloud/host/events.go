package host

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxEvents limits the queue of unsent events. If the queue is full, the machine drops new events, as a kubelet does.
const maxEvents = 100

const kubelet = "kubelet"

// record adds an event to the queue of the machine, and never blocks. If the settings omit events, record does nothing.
func (m *machine) record(about corev1.ObjectReference, kind, reason, message string) {
	if m.spec.Settings.OmitEvents {
		return
	}
	now := m.clock.Now()
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()+m.serial.Add(1))},
		InvolvedObject: about, Type: kind, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
		Source:              corev1.EventSource{Component: kubelet, Host: m.spec.Hostname},
		ReportingController: kubelet, ReportingInstance: m.spec.Hostname,
	}
	select {
	case m.events <- event:
	default:
	}
}

func (m *machine) nodeEvent(kind, reason, message string) {
	m.record(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.spec.Hostname}, kind, reason, message)
}

func (m *machine) registrationEvents() {
	for _, reason := range []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"} {
		m.nodeEvent(corev1.EventTypeNormal, reason, "Node "+m.spec.Hostname+" status is now: "+reason)
	}
	m.nodeEvent(corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// sendEvents sends events until the machine is switched off. An event that the API server rejects is lost.
func (m *machine) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-m.events:
			call, cancel := context.WithTimeout(ctx, callTimeout)
			_, _ = m.conn.core.Events(event.Namespace).Create(call, event, metav1.CreateOptions{})
			cancel()
		}
	}
}

const pulled = "Pulled"

// podEvent is an event about one container or, if container is empty, about the pod.
type podEvent struct {
	container, kind, reason, message string
}

// recordPodEvents sends the pending events of a pod. The first container with an image pulls it to the machine.
func (m *machine) recordPodEvents(p *pod) {
	for _, o := range p.pendingEvents {
		about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: p.uid}
		if o.container != "" {
			about.FieldPath = "spec.containers{" + o.container + "}"
		}
		if o.reason == pulled {
			image := p.image(o.container)
			o.message = fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", image)
			if m.pull(image) {
				m.record(about, o.kind, "Pulling", fmt.Sprintf("Pulling image %q", image))
				o.message = fmt.Sprintf("Successfully pulled image %q", image)
			}
		}
		m.record(about, o.kind, o.reason, o.message)
	}
	p.pendingEvents = nil
}
