package ui

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
)

const (
	// mostMoments and mostAddresses bound what the page of one machine shows: events may be many.
	mostMoments   = 60
	mostAddresses = 20
)

// machineBody is the page of one machine.
type machineBody struct {
	Machine fleet.Machine
	// Object is the machine as the API has it.
	Object *v1beta1.Machine
	// Set and Deployment own it, nil where there is none.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	Why        why.View
	// Operations are what was done with the machine, the latest first, and where the time went.
	Operations []operation
	// History is what happened, the latest first.
	History []why.Moment
	// Earlier is how many moments are not shown.
	Earlier int
	// NoEvents says why there are no events.
	NoEvents string
	// Drain is the condition Drained of a machine that is being deleted or was drained, nil for others; Volumes is
	// VolumesDetached.
	Drain, Volumes *metav1.Condition
	Addresses      []v1Address
}

type v1Address struct{ Type, Address string }

func machinePage(r *request) (*page, error) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	m := r.snapshot.machines[key]
	if m == nil {
		return goneMachine(r, key)
	}
	b := machineBody{Machine: fleet.MachineOf(m), Object: m}
	b.Set, b.Deployment = r.snapshot.owners(m)
	b.Why = r.server.options.Source.WhyMachine(r.Context(), m)
	events, unread := r.server.options.Source.Events(r.Context(), m)
	b.NoEvents = unread
	var failures []why.Failure
	if b.Deployment != nil {
		failures = why.FailuresOf(b.Deployment)
	}
	b.Operations = operationsOf(r.server.options.Source.Timeline(r.Context(), m, events, unread != ""))
	b.History = why.History(m, events, failures)
	if b.Earlier = max(0, len(b.History)-mostMoments); b.Earlier > 0 {
		b.History = b.History[:mostMoments]
	}
	b.Drain = meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	b.Volumes = meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionVolumesDetached)
	for _, a := range m.Status.Addresses[:min(len(m.Status.Addresses), mostAddresses)] {
		b.Addresses = append(b.Addresses, v1Address{string(a.Type), a.Address})
	}
	summary := "State: " + cmp.Or(b.Machine.State, "unknown")
	if b.Machine.Reason != "" {
		summary += ", " + b.Machine.Reason
	}
	return &page{title: "Machine " + m.Name, template: "machine", body: b, summary: summary}, nil
}

// goneMachine is the page of a machine that is not there. What its deployment remembers of it is said.
func goneMachine(r *request, key types.NamespacedName) (*page, error) {
	for _, f := range r.snapshot.Status.RecentFailures {
		if f.Namespace == key.Namespace && f.Machine == key.Name {
			return nil, notFound("Machine %s in namespace %s is gone. Deployment %s remembers its failure: %s",
				key.Name, key.Namespace, f.Deployment, f.Line(r.now))
		}
	}
	return nil, notFound("There is no machine %s in namespace %s, or you may not see it.", key.Name, key.Namespace)
}

// Labels returns how many labels, annotations and taints the machine puts on its Node.
func (b machineBody) Labels() string {
	node := b.Object.Spec.Node
	return fmt.Sprintf("%d labels, %d annotations, %d taints", len(node.Labels), len(node.Annotations), len(node.Taints))
}
