package why

import (
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
)

// Facts are what was read about a machine. What could not be read is absent, and reported in Unread.
type Facts struct {
	Now     time.Time
	Machine *v1beta1.Machine
	// Set owns the machine, Deployment the set; nil where there is none, or it could not be read.
	Set        *v1beta1.MachineSet
	Deployment *v1beta1.MachineDeployment
	// Class is the one that spec names, nil if it does not exist, could not be read or there is none named. ClassMissing
	// says that it does not exist.
	Class        *v1beta1.MachineClass
	ClassMissing bool
	// Sets are the sets of its namespace, if no set owns it.
	Sets []v1beta1.MachineSet
	// Checks are the health checks that select the machine.
	Checks []v1beta1.MachineHealthCheck
	// Unchecked are the machines of its namespace that no health check selects, if none selects this one.
	Unchecked []v1beta1.Machine
	// Denied is what does not let the machine be replaced although it must be, nil if nothing does.
	Denied *disruption.Denial
	// Provider is the process that serves the machine.
	Provider Process
	// Unread says what could not be read, and why, each in a sentence.
	Unread []string
}

// FleetFacts are what was read about a deployment, or a set that has none.
type FleetFacts struct {
	Now time.Time
	// Deployment or Set is what is asked about; the other one is nil.
	Deployment *v1beta1.MachineDeployment
	Set        *v1beta1.MachineSet
	// Machines are all of it, those being deleted included.
	Machines []*v1beta1.Machine
	// Manager is the process that serves it.
	Manager Process
	// Unread says what could not be read, and why, each in a sentence.
	Unread []string
}

// ClassFacts are what was read about a class.
type ClassFacts struct {
	Class *v1beta1.MachineClass
	// Provider is the process that serves it.
	Provider Process
}

// Finding is one thing that is waited for, or that is worth knowing.
type Finding struct {
	// About is the object that reports it, as TYPE/NAME.
	About string `json:"about"`
	// Condition and Reason are where it is written in the API; empty for what no condition says.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// What is the finding in a sentence.
	What string `json:"what"`
	// Machines are those that the finding is about, if they are several.
	Machines []string `json:"machines,omitempty"`
	// Message is what the controller says of it.
	Message string `json:"message,omitempty"`
	// Since is since when that is so.
	Since *time.Time `json:"since,omitempty"`
	// Until is when something happens by itself, which Ends says.
	Until *time.Time `json:"until,omitempty"`
	// Ends is what ends it.
	Ends string `json:"ends,omitempty"`
	// Do is what a person can do.
	Do string `json:"do,omitempty"`
}

func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
