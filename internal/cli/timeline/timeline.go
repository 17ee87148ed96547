// Package timeline shows how a machine reached its current state: the steps of each operation, their durations, and
// what they waited for.
//
// The times come from conditions, events and the Node. A time that is no longer recorded is reported as unknown.
package timeline

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Facts holds a machine and the objects that are needed to compute its timeline. Objects that could not be read are
// empty.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Node is the Node of the machine, or nil.
	Node *corev1.Node
	// Deployment is the deployment that owns the machine. Newest is the set of the deployment's newest revision. Both
	// fields are set only if the machine has an older revision, so that a rollout will replace the machine.
	Deployment *v1beta1.MachineDeployment
	Newest     *v1beta1.MachineSet
	// Events are the events about the machine in any order.
	Events []why.Event
	// EventsUnread is true if events could not be read.
	EventsUnread bool
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string
}

// Timeline is the known history of a machine as a list of operations.
type Timeline struct {
	// Now holds the time when the objects were read.
	Now time.Time `json:"now"`
	// Object is machine/NAME. Namespace is its namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	State     string `json:"state,omitempty"`
	Node      string `json:"node,omitempty"`
	// Operations are sorted by time, oldest first.
	Operations []Operation `json:"operations"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// Kind says what an operation does with the machine: Create, Replace or Delete.
type Kind string

const (
	// Create is the operation that starts with the creation of a machine, and ends when the machine is Running for the
	// first time.
	Create Kind = "Create"
	// Replace is the replacement of a machine or of its instance. The operation starts when the replacement is needed,
	// and ends when the old machine is gone or runs on its new instance.
	Replace Kind = "Replace"
	// Delete is the deletion of a machine. The operation starts at metadata.deletionTimestamp, and ends when the
	// machine is gone.
	Delete Kind = "Delete"
)

// Operation is the creation, replacement or deletion of a machine. Each step starts at the end of the previous step.
type Operation struct {
	Kind Kind `json:"kind"`
	// Start is accurate to the second.
	Start time.Time `json:"start"`
	// End is nil while the operation is in progress.
	End *time.Time `json:"end,omitempty"`
	// Seconds is the duration of the operation. For an operation in progress, it is the duration until now.
	Seconds float64 `json:"seconds"`
	Steps   []Step  `json:"steps"`
	// Unknown holds sentences about facts that are not recorded, such as a start time.
	Unknown []string `json:"unknown,omitempty"`
}

// Step is a part of an operation.
type Step struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	// End is nil while the step is in progress.
	End     *time.Time `json:"end,omitempty"`
	Seconds float64    `json:"seconds"`
	// Share is the step's fraction of the operation's duration, between 0 and 1.
	Share float64 `json:"share"`
	// WaitedFor describes the event or state that must be reached before the step ends.
	WaitedFor string `json:"waitedFor,omitempty"`
	// Reason and Message come from the condition that reports the step.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// EndedBy is the field or condition that recorded the end of the step.
	EndedBy string `json:"endedBy,omitempty"`
	// Events are the events during the step, oldest first.
	Events []Occurrence `json:"events,omitempty"`
}

// Occurrence is a Kubernetes event from the time of a step.
type Occurrence struct {
	Time    time.Time `json:"time"`
	Count   int32     `json:"count"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// New returns the timeline of a machine. The timeline contains the creation, replacement and deletion with their
// steps.
func New(o Facts) Timeline {
	m := o.Machine
	t := Timeline{Now: o.Now, Object: "machine/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Operations: []Operation{}, ReadErrors: o.ReadErrors}
	if m.Status.NodeRef != nil {
		t.Node = m.Status.NodeRef.Name
	}
	for _, operation := range []func(Facts) *track{create, replaceInstance, deleteMachine} {
		if track := operation(o); track != nil {
			t.Operations = append(t.Operations, track.finish(o))
		}
	}
	return t
}
