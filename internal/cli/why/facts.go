package why

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts contains a machine and the objects that are needed to explain why the machine waits. If an object could not be
// read, its field is empty, and Unread contains a sentence about the object.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Set is the set that owns the machine, and Deployment is the deployment that owns the set. Each is nil if there is no
	// such owner.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	// Class is the class that the machine refers to, or nil if it refers to no class. ClassMissing is true if the class
	// does not exist.
	Class        *v1beta1.MachineClass
	ClassMissing bool
	// If no set owns the machine, Sets are all sets in the namespace of the machine.
	Sets []v1beta1.MachineSet
	// Checks are the health checks that select the machine.
	Checks []v1beta1.MachineHealthCheck
	// If no health check selects the machine, Unchecked are all machines in the namespace that no health check selects.
	// Otherwise Unchecked is empty.
	Unchecked []v1beta1.Machine
	// If the machine must be replaced, Denied describes what prevents the replacement. It is nil if nothing prevents the
	// replacement.
	Denied *disruption.Denial
	// Provider is the process that serves the machine.
	Provider Process
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string
}

// FleetFacts contains a deployment, or a set that no deployment owns, and the objects that are needed to explain why
// the fleet waits.
type FleetFacts struct {
	Now time.Time
	// Either Deployment or Set is the object to explain, and the other field is nil.
	Deployment *v1beta1.MachineDeployment
	Set        *v1beta1.MachineSet
	// Machines are all machines of the fleet, including machines that are being deleted.
	Machines []*v1beta1.Machine
	// Manager is the process that serves the fleet.
	Manager Process
	// Unread contains a sentence for each kind of object that could not be read.
	Unread []string
}

// ClassFacts contains a class and the process that serves the class.
type ClassFacts struct {
	Class *v1beta1.MachineClass
	// Provider is the process that serves the class.
	Provider Process
}

// Finding describes one thing that an object waits for, or another problem of the object.
type Finding struct {
	// About is the object that the finding describes, in the form TYPE/NAME.
	About string `json:"about"`
	// Condition is the type of the condition that reports the finding, and Reason is the reason in this condition. If no
	// condition reports the finding, Condition is empty, and Reason is one of the constants in this package.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// The field What describes the finding in a sentence.
	What string `json:"what"`
	// If the finding is about several machines, Machines contains their names.
	Machines []string `json:"machines,omitempty"`
	// Message is the message of the controller.
	Message string `json:"message,omitempty"`
	// Since is the time at which the described state began.
	Since *time.Time `json:"since,omitempty"`
	// The field Until is the time at which the next step happens automatically. Ends describes what happens at this time.
	Until *time.Time `json:"until,omitempty"`
	// Ends describes what happens next, or what ends the described state.
	Ends string `json:"ends,omitempty"`
	// The field Do describes what an administrator can do.
	Do string `json:"do,omitempty"`
}

// inUTC converts a time to UTC. If the time is zero, inUTC returns nil.
func inUTC(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
