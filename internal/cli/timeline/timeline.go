// Package timeline shows how a machine came to be where it is: the steps one after the other, how long each took and
// what it waited for.
//
// It is pure: Of makes a Timeline of what was read, Text prints one. It goes by the times that conditions, events and
// the Node have, and needs no traces. What these no longer say is named as not known, and never guessed.
package timeline

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Observed is what was read of a machine. What could not be read is absent.
type Observed struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Node is that of the machine, nil if it has none or it was not read.
	Node *corev1.Node
	// Deployment is the machine's, if a set of another revision than the newest one has the machine: it will be
	// replaced. Newest is the set of the newest revision. Both are nil otherwise.
	Deployment *v1beta1.MachineDeployment
	Newest     *v1beta1.MachineSet
	// Events are those of the machine that there still are, in any order.
	Events []why.Event
	// EventsUnread says that events could not be read.
	EventsUnread bool
	// Unread says what could not be read, and why, each in a sentence.
	Unread []string
}

// Timeline is the life of a machine as far as it is known, operation by operation.
type Timeline struct {
	// Now is the time at which it was so.
	Now time.Time `json:"now"`
	// Object is the machine as TYPE/NAME, in Namespace.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	State     string `json:"state,omitempty"`
	Node      string `json:"node,omitempty"`
	// Operations are the oldest first.
	Operations []Operation `json:"operations"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Kind is what an operation does.
type Kind string

const (
	// Create goes from the creation of the machine until it first runs.
	Create Kind = "Create"
	// Replace goes from the moment in which the machine or its instance was found to be one to replace until the machine
	// is gone, or runs on its new instance.
	Replace Kind = "Replace"
	// Delete goes from the deletion of the machine until it is gone.
	Delete Kind = "Delete"
)

// Operation is one thing that was done with a machine. Its steps follow each other without a gap.
type Operation struct {
	Kind Kind `json:"kind"`
	// Start is exact to the second, as all times in the API are.
	Start time.Time `json:"start"`
	// End is absent while the operation goes on.
	End *time.Time `json:"end,omitempty"`
	// Seconds is how long it took, or has taken until now.
	Seconds float64 `json:"seconds"`
	Steps   []Step  `json:"steps"`
	// Unknown says what is not known of it, each in a sentence.
	Unknown []string `json:"unknown,omitempty"`
}

// Step is a part of an operation.
type Step struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	// End is absent while the step goes on.
	End     *time.Time `json:"end,omitempty"`
	Seconds float64    `json:"seconds"`
	// Share is its part of the time of its operation, from 0 to 1.
	Share float64 `json:"share"`
	// WaitedFor says in words what the step waits or waited for.
	WaitedFor string `json:"waitedFor,omitempty"`
	// Reason and Message are those of the condition that reports it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// EndedBy is where the time of the end is written.
	EndedBy string `json:"endedBy,omitempty"`
	// Events are those that were reported meanwhile, the oldest first.
	Events []Occurrence `json:"events,omitempty"`
}

// Occurrence is an event in a step.
type Occurrence struct {
	Time    time.Time `json:"time"`
	Count   int32     `json:"count"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// Of returns the timeline of what was read.
func Of(o Observed) Timeline {
	m := o.Machine
	t := Timeline{Now: o.Now, Object: "machine/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Operations: []Operation{}, Unread: o.Unread}
	if m.Status.NodeRef != nil {
		t.Node = m.Status.NodeRef.Name
	}
	for _, operation := range []func(Observed) *track{create, replaceInstance, leave} {
		if track := operation(o); track != nil {
			t.Operations = append(t.Operations, track.finish(o))
		}
	}
	return t
}
