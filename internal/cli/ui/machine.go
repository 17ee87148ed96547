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
	// maxMoments and maxAddresses keep the page of a machine short.
	maxMoments   = 60
	maxAddresses = 20
)

type machineBody struct {
	Machine fleet.Machine
	// Object is the Machine from the API server.
	Object *v1beta1.Machine
	// Set and Deployment are the owners of the machine, or nil.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	Why        why.View
	// Operations lists the creation, replacement and deletion of the machine from its timeline, latest first.
	Operations []operation
	// History lists what happened to the machine, latest first.
	History []why.Moment
	// HiddenEntries holds the number of older history entries that the page does not show.
	HiddenEntries int
	// NoEvents explains why the events could not be read, or is empty.
	NoEvents string
	// Drain and Volumes are the conditions Drained and VolumesDetached, or nil.
	Drain, Volumes *metav1.Condition
	Addresses      []address
}

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
	if b.HiddenEntries = max(0, len(b.History)-maxMoments); b.HiddenEntries > 0 {
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

// missingMachine returns the error page for a machine that does not exist. The page shows failures that a deployment
// still lists.
func missingMachine(r *request, key types.NamespacedName) (*page, error) {
	for _, f := range r.snapshot.Status.RecentFailures {
		if f.Namespace == key.Namespace && f.Machine == key.Name {
			return nil, notFound("The machine %s in namespace %s is gone. The status of the deployment %s has its failure: %s",
				key.Name, key.Namespace, f.Deployment, f.Line(r.now))
		}
	}
	return nil, notFound("The machine %s does not exist in namespace %s, or you may not see it.", key.Name, key.Namespace)
}

// Labels counts the labels, annotations and taints of spec.node.
func (b machineBody) Labels() string {
	node := b.Object.Spec.Node
	return fmt.Sprintf("%d labels, %d annotations, %d taints", len(node.Labels), len(node.Annotations), len(node.Taints))
}
