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
	// maxMoments and maxAddresses limit what the page of a machine shows, because there may be many events.
	maxMoments   = 60
	maxAddresses = 20
)

// machineBody is the body of the page of a machine.
type machineBody struct {
	Machine fleet.Machine
	// Object is the Machine in the API.
	Object *v1beta1.Machine
	// Set and Deployment own the machine. They are nil if there are none.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	Why        why.View
	// Operations are the operations in the timeline, the latest first.
	Operations []operation
	// History is what happened to the machine, the latest first.
	History []why.Moment
	// Earlier is how many moments are not shown.
	Earlier int
	// NoEvents is a sentence about the reason if events could not be read.
	NoEvents string
	// Drain and Volumes are the conditions Drained and VolumesDetached, or nil if the machine does not have them.
	Drain, Volumes *metav1.Condition
	Addresses      []address
}

// address is an address of the instance.
type address struct{ Type, Address string }

func machinePage(r *request) (*page, error) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	m := r.snapshot.machines[key]
	if m == nil {
		return missingMachine(r, key)
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
	if b.Earlier = max(0, len(b.History)-maxMoments); b.Earlier > 0 {
		b.History = b.History[:maxMoments]
	}
	b.Drain = meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	b.Volumes = meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionVolumesDetached)
	for _, a := range m.Status.Addresses[:min(len(m.Status.Addresses), maxAddresses)] {
		b.Addresses = append(b.Addresses, address{string(a.Type), a.Address})
	}
	summary := "State: " + cmp.Or(b.Machine.State, "unknown")
	if b.Machine.Reason != "" {
		summary += ", " + b.Machine.Reason
	}
	return &page{title: "Machine " + m.Name, template: "machine", body: b, summary: summary}, nil
}

// missingMachine returns the error page of a machine that does not exist. It shows the failure of the machine if the
// status of its deployment still has it.
func missingMachine(r *request, key types.NamespacedName) (*page, error) {
	for _, f := range r.snapshot.Status.RecentFailures {
		if f.Namespace == key.Namespace && f.Machine == key.Name {
			return nil, notFound("The machine %s in namespace %s is gone. The status of the deployment %s has its failure: %s",
				key.Name, key.Namespace, f.Deployment, f.Line(r.now))
		}
	}
	return nil, notFound("The machine %s does not exist in namespace %s, or you may not see it.", key.Name, key.Namespace)
}

// Labels returns the numbers of labels, annotations and taints in spec.node.
func (b machineBody) Labels() string {
	node := b.Object.Spec.Node
	return fmt.Sprintf("%d labels, %d annotations, %d taints", len(node.Labels), len(node.Annotations), len(node.Taints))
}
