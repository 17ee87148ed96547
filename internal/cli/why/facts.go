package why

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts are a machine and the objects that explain why it waits. Objects that could not be read are empty, with a
// sentence in Unread.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Set and Deployment are the owners of the machine, or nil.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	// Class is the class of the machine, or nil. ClassMissing is true if it does not exist.
	Class        *v1beta1.MachineClass
	ClassMissing bool
	// Sets are all sets in the namespace, if the machine has no set.
	Sets []v1beta1.MachineSet
	// Checks are the health checks that select the machine.
	Checks []v1beta1.MachineHealthCheck
	// Unchecked are the machines in the namespace without a health check, if this machine has none.
	Unchecked []v1beta1.Machine
	// Denied is what prevents the replacement of the machine, or nil.
	Denied *disruption.Denial
	// Provider is the process that serves the machine.
	Provider Process
	// Unread has a sentence for each kind of object that could not be read.
	Unread []string
}

// FleetFacts are a deployment, or a set without one, and the objects that explain why it waits.
type FleetFacts struct {
	Now        time.Time
	Deployment *v1beta1.MachineDeployment
	Set        *v1beta1.MachineSet
	// Machines are all machines, including those that are being deleted.
	Machines []*v1beta1.Machine
	// Manager is the process that serves the fleet.
	Manager Process
	// Unread has a sentence for each kind of object that could not be read.
	Unread []string
}

// ClassFacts are a class and the process that serves it.
type ClassFacts struct {
	Class *v1beta1.MachineClass
	// Provider is the process that serves the class.
	Provider Process
}

// Finding is one thing that an object waits for, or another problem.
type Finding struct {
	// About is the object of the finding, as TYPE/NAME.
	About string `json:"about"`
	// Condition and Reason come from the condition that reports the finding. Without one, Condition is empty, and
	// Reason is a constant of this package.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// What describes the finding in a sentence.
	What string `json:"what"`
	// Machines are the names, if the finding is about several machines.
	Machines []string `json:"machines,omitempty"`
	// Message is the message of the controller.
	Message string `json:"message,omitempty"`
	// Since is when the described state began.
	Since *time.Time `json:"since,omitempty"`
	// Until is when the next step happens automatically. Ends describes this step.
	Until *time.Time `json:"until,omitempty"`
	// Ends is what happens next, or what ends the state.
	Ends string `json:"ends,omitempty"`
	// Do is what an administrator can do.
	Do string `json:"do,omitempty"`
}

// inUTC converts a time to UTC. A zero time becomes nil.
func inUTC(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
