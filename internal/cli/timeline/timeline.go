// Package timeline shows how a machine reached its current state. It lists the steps of each operation, how long each
// step took, and what each step waited for.
//
// The function Of computes a Timeline from objects that the caller has read, and Timeline.Text prints it. The times
// come from conditions, events and the Node, so tracing is not needed. If a time is no longer recorded, the timeline
// reports that the time is unknown. It does not guess times.
package timeline

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Observed contains a machine and the objects that belong to the machine, as the caller has read them. If an object
// could not be read, its field is empty.
type Observed struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Node is the Node of the machine. It is nil if the machine has no Node or if the Node was not read.
	Node *corev1.Node
	// Deployment is the deployment that owns the machine, and Newest is the set of its newest revision. Both are set only
	// if a set of another revision owns the machine, so that a rollout will replace the machine.
	Deployment *v1beta1.MachineDeployment
	Newest     *v1beta1.MachineSet
	// Events are the events about the machine that have not expired, in any order.
	Events []why.Event
	// EventsUnread is true if events could not be read.
	EventsUnread bool
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string
}

// Timeline is the known history of a machine, as a list of operations.
type Timeline struct {
	// Now is the time at which the objects were read.
	Now time.Time `json:"now"`
	// Object is the machine in the form machine/NAME. Namespace is the namespace of the machine.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	State     string `json:"state,omitempty"`
	Node      string `json:"node,omitempty"`
	// Operations are sorted by time. The oldest operation comes first.
	Operations []Operation `json:"operations"`
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Kind is the kind of an operation.
type Kind string

const (
	// Create starts when the machine is created. It ends when the machine is Running for the first time.
	Create Kind = "Create"
	// Replace starts when the machine or its instance is due for replacement. It ends when the machine no longer exists,
	// or when it runs on its new instance.
	Replace Kind = "Replace"
	// Delete starts when the deletion of the machine is requested. It ends when the machine no longer exists.
	Delete Kind = "Delete"
)

// Operation is the creation, replacement or deletion of a machine. Each step starts when the previous step ends.
type Operation struct {
	Kind Kind `json:"kind"`
	// Start is accurate to the second, like all times in the API.
	Start time.Time `json:"start"`
	// End is nil while the operation is in progress.
	End *time.Time `json:"end,omitempty"`
	// Seconds is the duration of the operation. If the operation is still in progress, Seconds is the duration until now.
	Seconds float64 `json:"seconds"`
	Steps   []Step  `json:"steps"`
	// Unknown contains a sentence for each fact about the operation that is unknown.
	Unknown []string `json:"unknown,omitempty"`
}

// Step is a part of an operation.
type Step struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	// End is nil while the step is in progress.
	End     *time.Time `json:"end,omitempty"`
	Seconds float64    `json:"seconds"`
	// Share is the duration of the step as a fraction of the duration of the operation, between 0 and 1.
	Share float64 `json:"share"`
	// WaitedFor describes what the step is waiting for, or waited for.
	WaitedFor string `json:"waitedFor,omitempty"`
	// Reason and Message are taken from the condition that reports the step.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// EndedBy is the field or condition from which the end of the step was taken.
	EndedBy string `json:"endedBy,omitempty"`
	// Events are the events that occurred during the step. The oldest event comes first.
	Events []Occurrence `json:"events,omitempty"`
}

// Occurrence is an event that occurred during a step.
type Occurrence struct {
	Time    time.Time `json:"time"`
	Count   int32     `json:"count"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// Of returns the timeline of a machine.
func Of(o Observed) Timeline {
	m := o.Machine
	t := Timeline{Now: o.Now, Object: "machine/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Operations: []Operation{}, Unread: o.Unread}
	if m.Status.NodeRef != nil {
		t.Node = m.Status.NodeRef.Name
	}
	for _, operation := range []func(Observed) *track{create, replaceInstance, deleteMachine} {
		if track := operation(o); track != nil {
			t.Operations = append(t.Operations, track.finish(o))
		}
	}
	return t
}
