package why

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"machinist.dev/machinist/internal/cli/printer"
)

// leaseLeniency is how long a process counts as running after its Lease has expired.
const leaseLeniency = 5 * time.Second

// Process is the state of a process of Machinist according to its Lease.
type Process struct {
	// Name is the name of the Lease.
	Name string `json:"name"`
	// IsKnown is true if the Lease could be read. If IsKnown is false, ignore the fields IsRunning and LastRenewal.
	IsKnown bool `json:"known"`
	// IsRunning is true if a process keeps renewing the Lease.
	IsRunning bool `json:"running"`
	// LastRenewal is the time when the Lease was last renewed.
	LastRenewal *time.Time `json:"seen,omitempty"`
	// Searched lists the namespaces in which the command searched for the Lease and did not find it.
	Searched []string `json:"searched,omitempty"`
}

// Judge determines the state of a process from its Lease.
func Judge(lease *coordinationv1.Lease, now time.Time) Process {
	p := Process{Name: lease.Name, IsKnown: true}
	if lease.Spec.RenewTime == nil {
		return p
	}
	p.LastRenewal = inUTC(lease.Spec.RenewTime.Time)
	duration := 15 * time.Second
	if lease.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	p.IsRunning = held && now.Sub(*p.LastRenewal) <= duration+leaseLeniency
	return p
}

// Trouble describes a process that is not running or whose Lease was not found. Both results are empty if there is no
// problem.
func (p Process) Trouble(now time.Time) (what, more string) {
	switch {
	case p.IsRunning:
	case p.IsKnown && p.LastRenewal != nil:
		return "The process " + p.Name + " is not running.",
			fmt.Sprintf(" Its Lease was last renewed %s ago, so what you see here may be outdated.", printer.Age(now, *p.LastRenewal))
	case p.IsKnown:
		return "The process " + p.Name + " is not running.", ""
	case len(p.Searched) > 0:
		return "The process " + p.Name + " may not be running.", " It has no Lease in " + strings.Join(p.Searched, ", ") +
			". If its Lease is elsewhere, name the namespace with --system-namespace."
	}
	return "", ""
}

// notRunning returns a finding if the process is not running or its Lease was not found. If the Lease was not found,
// the process may still be running. Therefore the finding describes the consequence for the case that the process does
// not run.
func (p Process) notRunning(about, consequence string) []Finding {
	switch {
	case p.IsKnown && !p.IsRunning:
		f := Finding{
			Object: about, Reason: NoProcess, StartTime: p.LastRenewal,
			Description:  fmt.Sprintf("The process %s is not running, so this object is not processed.", p.Name),
			NextStep:     "Machinist continues when the process runs again. All other findings may be outdated, because they date from the time before the process stopped.",
			Instructions: fmt.Sprintf("Start %s, or find out why it exits or cannot reach this cluster.", p.Name),
		}
		return []Finding{f}
	case !p.IsKnown && len(p.Searched) > 0:
		return []Finding{{
			Object: about, Reason: NoProcess,
			Description: fmt.Sprintf("The process %s may not be running: it has no Lease in %s.", p.Name,
				strings.Join(p.Searched, ", ")),
			NextStep:     cmp.Or(consequence, "If the process does not run, this object is not processed."),
			Instructions: "Start the process. If it runs and its Lease is in another namespace (--leader-election-namespace), specify this namespace with --system-namespace.",
		}}
	}
	return nil
}

// Reasons of findings that no condition reports.
const (
	// NoProcess means that a manager or provider process is not running.
	NoProcess = "NoProcess"
	// ReasonUnobserved means that the latest change of an object has not been processed yet.
	ReasonUnobserved = "Unobserved"
	// OwnerDeleting means that the owner of a machine is being deleted.
	OwnerDeleting = "OwnerDeleting"
	// OtherFinalizers means that finalizers of other controllers delay the deletion of an object.
	OtherFinalizers = "ForeignFinalizers"
	// SilentDomain means that most Nodes in a domain of spec.placement are not Ready.
	SilentDomain = "SilentDomain"
	// NoOwner means that a machine without a set is not replaced.
	NoOwner = "NoOwner"
	// NoBudget means that a machine is not replaced because its owner's maxInFlight is 0.
	NoBudget = "NoBudget"
	// DisruptionDenied means that a budget or an annotation prevents the replacement of a machine.
	DisruptionDenied = "DisruptionDenied"
	// RemediationSkipped means that a machine is exempt from remediation.
	RemediationSkipped = "RemediationSkipped"
)
