package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Machine is one machine in a list.
type Machine struct {
	Namespace string
	Name      string
	// Set and Deployment own it; empty where there is none.
	Set        string
	Deployment string
	// State is its phase, Ready its condition.
	State string
	Ready bool
	// Node is the one that it became, Zone that of its instance, Version that of its kubelet.
	Node    string
	Zone    string
	Version string
	// ProviderID names the instance at its cloud.
	ProviderID string
	Created    time.Time
	// Reason is what it waits for, Explanation the same in a sentence, Message the controller's own words, Since since
	// when; empty where it is settled.
	Reason      string
	Explanation string
	Message     string
	Since       *time.Time
	// Deleting says that it is being deleted.
	Deleting bool
}

// Settled reports whether the machine runs, is what its specification asks for, and waits for nothing.
func (m Machine) Settled() bool { return m.Reason == "" }

// MachineOf makes the view of a machine.
func MachineOf(m *v1beta1.Machine) Machine {
	x := Machine{Namespace: m.Namespace, Name: m.Name, Created: m.CreationTimestamp.UTC(), State: string(m.Status.Phase),
		Ready:      meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady),
		Deployment: m.Labels[v1beta1.LabelMachineDeployment],
		Version:    m.Status.Version, ProviderID: m.Spec.ProviderID, Deleting: m.DeletionTimestamp != nil}
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		x.Set = owner.Name
	}
	if m.Status.NodeRef != nil {
		x.Node = m.Status.NodeRef.Name
	}
	if m.Status.Instance != nil {
		x.Zone = m.Status.Instance.Zone
	}
	if c := why.Blocking(m); c != nil {
		x.Reason, x.Message, x.Since = c.Reason, c.Message, timeOf(c.LastTransitionTime)
		x.Explanation = why.MeaningOf(c.Type, c.Reason).Explanation
	}
	return x
}
