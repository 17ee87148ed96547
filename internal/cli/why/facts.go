package why

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts holds a machine, and the objects that explain why the machine waits. If an object could not be read, its
// field is empty, and ReadErrors contains a sentence about the object.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Set and Deployment are the owners of the machine, or nil.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	// DeletionReason is the reason that the set has stated for the deletion of the machine, or empty.
	DeletionReason string
	// Class is the class of the machine, or nil. ClassMissing is true if the class of the machine does not exist.
	Class        *v1beta1.MachineClass
	ClassMissing bool
	// Sets lists all sets in the namespace. The field is filled only if the machine has no set.
	Sets []v1beta1.MachineSet
	// Checks are the health checks that select the machine.
	Checks []v1beta1.MachineHealthCheck
	// UncheckedMachines lists the machines in the namespace that no health check selects. The field is filled only if
	// no health check selects this machine.
	UncheckedMachines []v1beta1.Machine
	// Denial is the reason why the machine may not be replaced now. It is nil if the machine may be replaced.
	Denial *disruption.Denial
	// Provider is the process that serves the machine.
	Provider Process
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string
}

// FleetFacts holds the objects that explain why a fleet waits. The fleet is a deployment, or a set without a
// deployment.
type FleetFacts struct {
	Now        time.Time
	Deployment *v1beta1.MachineDeployment
	Set        *v1beta1.MachineSet
	// Machines lists the machines of the fleet, including the machines that are being deleted.
	Machines []*v1beta1.Machine
	// Manager is the process that serves the fleet.
	Manager Process
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string
}

// ClassFacts holds a class, and the state of the process that serves the class.
type ClassFacts struct {
	Class *v1beta1.MachineClass
	// Provider is the process that serves the class.
	Provider Process
}

// Finding explains one cause for which an object waits, or one problem of the object.
type Finding struct {
	// Object holds the TYPE/NAME of the object that the finding explains.
	Object string `json:"about"`
	// Condition and Reason come from the condition that reports the finding. If no condition reports the finding,
	// Condition is empty, and Reason is a constant of this package.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Description holds a sentence that describes the cause or problem.
	Description string `json:"what"`
	// Machines are the names, if the finding is about several machines.
	Machines []string `json:"machines,omitempty"`
	// Message is the text that the controller wrote into the condition or status.
	Message string `json:"message,omitempty"`
	// StartTime holds the time when the described state began.
	StartTime *time.Time `json:"since,omitempty"`
	// NextStepTime holds the time of the next automatic step. NextStep describes this step.
	NextStepTime *time.Time `json:"until,omitempty"`
	// NextStep holds a sentence about the next automatic step, or about the event that ends the described state.
	NextStep string `json:"ends,omitempty"`
	// Instructions holds instructions with which an administrator can fix the problem.
	Instructions string `json:"do,omitempty"`
}

// inUTC converts a time to UTC. A zero time becomes nil.
func inUTC(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
