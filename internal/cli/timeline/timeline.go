// Package timeline shows how a machine reached its current state: the steps one after the other, how long each took and
// what it waited for.
//
// The package is pure: Of computes a Timeline from what the caller has read, and Text prints it. It takes the times
// from conditions, events and the Node, and needs no traces. Times that are no longer recorded are reported as not
// known, and never guessed.
package timeline

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Observed is what was read about a machine. A field is empty if its object could not be read.
type Observed struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Node is the Node of the machine, or nil if it has none or if it was not read.
	Node *corev1.Node
	// Deployment owns the machine, and Newest is its set of the newest revision. Both are nil unless a set of another
	// revision owns the machine, so that the machine will be replaced.
	Deployment *v1beta1.MachineDeployment
	Newest     *v1beta1.MachineSet
	// Events are the events of the machine that have not expired, in any order.
	Events []why.Event
	// EventsUnread is true if events could not be read.
	EventsUnread bool
	// Unread are sentences about objects that could not be read.
	Unread []string
}

// Timeline is the history of a machine as far as it is known, operation by operation.
type Timeline struct {
	// Now is the time at which the objects were read.
	Now time.Time `json:"now"`
	// Object is the machine as TYPE/NAME, in Namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	State     string `json:"state,omitempty"`
	Node      string `json:"node,omitempty"`
	// Operations are sorted by time, the oldest first.
	Operations []Operation `json:"operations"`
	// Unread are sentences about objects that could not be read.
	Unread []string `json:"unread,omitempty"`
}

// Kind is what an operation does.
type Kind string

const (
	// Create lasts from the creation of the machine until it is first Running.
	Create Kind = "Create"
	// Replace starts when the machine or its instance must be replaced. It lasts until the machine is gone, or runs on its
	// new instance.
	Replace Kind = "Replace"
	// Delete lasts from the deletion of the machine until it is gone.
	Delete Kind = "Delete"
)

// Operation is the creation, replacement or deletion of a machine. Its steps follow each other without a gap.
type Operation struct {
	Kind Kind `json:"kind"`
	// Start is exact to the second, as all times in the API are.
	Start time.Time `json:"start"`
	// End is absent while the operation is in progress.
	End *time.Time `json:"end,omitempty"`
	// Seconds is how long the operation took, or has taken until now.
	Seconds float64 `json:"seconds"`
	Steps   []Step  `json:"steps"`
	// Unknown are sentences about unknown facts of the operation.
	Unknown []string `json:"unknown,omitempty"`
}

// Step is a part of an operation.
type Step struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	// End is absent while the step is in progress.
	End     *time.Time `json:"end,omitempty"`
	Seconds float64    `json:"seconds"`
	// Share is the share of the step in the time of the operation, from 0 to 1.
	Share float64 `json:"share"`
	// WaitedFor describes what the step waits or waited for.
	WaitedFor string `json:"waitedFor,omitempty"`
	// Reason and Message are taken from the condition that reports the step.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// EndedBy names the field or condition that has the time of the end.
	EndedBy string `json:"endedBy,omitempty"`
	// Events are the events that happened during the step, the oldest first.
	Events []Occurrence `json:"events,omitempty"`
}

// Occurrence is an event in a step.
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
