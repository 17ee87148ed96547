package why

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts are what was read about a machine. A field is empty if its object could not be read, and Unread then contains
// a sentence about it.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Set owns the machine, and Deployment owns the set. They are nil if there are none.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	// Class is the class that the machine names, or nil if it names none. ClassMissing is true if the class does not
	// exist.
	Class        *v1beta1.MachineClass
	ClassMissing bool
	// Sets are the sets of the machine's namespace, if no set owns the machine.
	Sets []v1beta1.MachineSet
	// Checks are the health checks that select the machine.
	Checks []v1beta1.MachineHealthCheck
	// Unchecked are the machines of the namespace that no health check selects. It is empty if a health check selects this
	// machine.
	Unchecked []v1beta1.Machine
	// Denied is what prevents the replacement of a machine that must be replaced, or nil if nothing prevents the
	// replacement.
	Denied *disruption.Denial
	// Provider is the process that serves the machine.
	Provider Process
	// Unread are sentences about objects that could not be read.
	Unread []string
}

// FleetFacts are what was read about a deployment or a standalone set.
type FleetFacts struct {
	Now time.Time
	// One of Deployment and Set is the explained object, and the other is nil.
	Deployment *v1beta1.MachineDeployment
	Set        *v1beta1.MachineSet
	// Machines are all machines of the fleet, including those that are being deleted.
	Machines []*v1beta1.Machine
	// Manager is the process that serves the fleet.
	Manager Process
	// Unread are sentences about objects that could not be read.
	Unread []string
}

// ClassFacts are what was read about a class.
type ClassFacts struct {
	Class *v1beta1.MachineClass
	// Provider is the process that serves the class.
	Provider Process
}

// Finding is one thing that an object waits for, or another problem of the object.
type Finding struct {
	// About is the object that the finding is about, as TYPE/NAME.
	About string `json:"about"`
	// Condition is the condition that reports the finding, or empty if no condition reports it. Reason is its reason, or
	// one of the reasons in this package.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// What is the finding in a sentence.
	What string `json:"what"`
	// Machines are the machines that the finding is about, if there are several.
	Machines []string `json:"machines,omitempty"`
	// Message is the message of the controller.
	Message string `json:"message,omitempty"`
	// Since is the time at which the state began.
	Since *time.Time `json:"since,omitempty"`
	// Until is the time at which something happens automatically. Ends describes what happens.
	Until *time.Time `json:"until,omitempty"`
	// Ends describes what happens next, or what ends the state.
	Ends string `json:"ends,omitempty"`
	// Do describes what an administrator can do.
	Do string `json:"do,omitempty"`
}

// at returns a time in UTC, or nil if it is zero.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
