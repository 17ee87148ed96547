package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// Machine is the view of one machine, for lists.
type Machine struct {
	Namespace string
	Name      string
	// Set and Deployment are the names of the owners, or empty.
	Set        string
	Deployment string
	// State is the phase of the machine. Ready is the status of the machine's condition Ready.
	State string
	Ready bool
	// Node is the name of the Node, Zone is the name of the zone, and Version is the version of the kubelet.
	Node    string
	Zone    string
	Version string
	// Class is the name of the machine's class, or empty. Domain is the domain of the placement to which the machine
	// belongs, or empty.
	Class  string
	Domain string
	// ProviderID identifies the instance in its cloud.
	ProviderID string
	Created    time.Time
	// Reason is one word that says why the machine waits. Explanation describes the reason in a sentence. Message is
	// from the controller. Since holds the time when the wait began. The fields Reason, Explanation, Message and Since
	// are empty if the machine does not wait.
	Reason      string
	Explanation string
	Message     string
	Since       *time.Time
	// Deleting is true if the machine is being deleted.
	Deleting bool
}

// IsSettled reports whether the machine runs, is up to date, and waits for nothing.
func (m Machine) IsSettled() bool { return m.Reason == "" }

// MachineOf returns the view of a machine.
func MachineOf(m *v1beta1.Machine) Machine {
	x := Machine{Namespace: m.Namespace, Name: m.Name, Created: m.CreationTimestamp.UTC(), State: string(m.Status.Phase),
		Ready:      meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady),
		Deployment: m.Labels[v1beta1.LabelMachineDeployment], Class: className(m.Spec.ClassRef),
		Domain:  m.Labels[v1beta1.LabelPlacementDomain],
		Version: m.Status.Version, ProviderID: m.Spec.ProviderID, Deleting: m.DeletionTimestamp != nil}
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
