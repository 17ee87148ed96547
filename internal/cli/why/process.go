package why

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"machinist.dev/machinist/internal/cli/printer"
)

// leaseLeniency is how long after the end of its Lease a process still counts as running.
const leaseLeniency = 5 * time.Second

// Process is the state of a process of Machinist as its Lease shows it.
type Process struct {
	// Name is the name of the Lease.
	Name string `json:"name"`
	// Known is true if the Lease exists and could be read. Otherwise Running and Seen mean nothing.
	Known bool `json:"known"`
	// Running is true if a process holds the Lease and renews it.
	Running bool `json:"running"`
	// Seen is when the Lease was last renewed.
	Seen *time.Time `json:"seen,omitempty"`
	// Searched are the namespaces in which the Lease was not found.
	Searched []string `json:"searched,omitempty"`
}

// Judge returns the state of the process that a Lease belongs to.
func Judge(lease *coordinationv1.Lease, now time.Time) Process {
	p := Process{Name: lease.Name, Known: true}
	if lease.Spec.RenewTime == nil {
		return p
	}
	p.Seen = at(lease.Spec.RenewTime.Time)
	duration := 15 * time.Second
	if lease.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	p.Running = held && now.Sub(*p.Seen) <= duration+leaseLeniency
	return p
}

// Trouble returns a sentence in two parts: that the process does not run, or that its Lease was not found, and details.
// Both are empty if the process runs.
func (p Process) Trouble(now time.Time) (what, more string) {
	switch {
	case p.Running:
	case p.Known && p.Seen != nil:
		return "The process " + p.Name + " is not running.",
			fmt.Sprintf(" Its Lease was last renewed %s ago, so what you see here may be outdated.", printer.Age(now, *p.Seen))
	case p.Known:
		return "The process " + p.Name + " is not running.", ""
	case len(p.Searched) > 0:
		return "The process " + p.Name + " may not be running.", " It has no Lease in " + strings.Join(p.Searched, ", ") +
			". If its Lease is elsewhere, name the namespace with --system-namespace."
	}
	return "", ""
}

// notRunning returns the finding that a process is not running, or that its Lease was not found. If the Lease was not
// found, consequence is the part of the finding that describes what happens if the process is not running.
func (p Process) notRunning(about, consequence string) []Finding {
	switch {
	case p.Known && !p.Running:
		f := Finding{
			About: about, Reason: NoProcess, Since: p.Seen,
			What: fmt.Sprintf("The process %s is not running, so this object is not processed.", p.Name),
			Ends: "Machinist continues when the process runs again. Other findings date from before it stopped.",
			Do:   fmt.Sprintf("Start %s, or find out why it exits or cannot reach this cluster.", p.Name),
		}
		return []Finding{f}
	case !p.Known && len(p.Searched) > 0:
		return []Finding{{
			About: about, Reason: NoProcess,
			What: fmt.Sprintf("The process %s may not be running: it has no Lease in %s.", p.Name,
				strings.Join(p.Searched, ", ")),
			Ends: cmp.Or(consequence, "If the process does not run, this object is not processed."),
			Do:   "Start the process. If it runs and its Lease is in another namespace (--leader-election-namespace), name this namespace with --system-namespace.",
		}}
	}
	return nil
}

// Reasons of findings that no condition reports.
const (
	// NoProcess is the reason for a process that does not run.
	NoProcess = "NoProcess"
	// Unobserved is the reason for a change that no process has processed yet.
	Unobserved = "Unobserved"
	// OwnerDeleting is the reason for a machine whose owner is being deleted.
	OwnerDeleting = "OwnerDeleting"
	// OtherFinalizers is the reason for an object that finalizers of other controllers keep.
	OtherFinalizers = "ForeignFinalizers"
	// NoOwner is the reason for a machine that is not replaced because no set owns it.
	NoOwner = "NoOwner"
	// NoBudget is the reason for a machine whose owner replaces no machines (maxInFlight is 0).
	NoBudget = "NoBudget"
	// DisruptionDenied is the reason for a machine whose replacement is prevented by a disruption budget or an annotation.
	DisruptionDenied = "DisruptionDenied"
	// RemediationSkipped is the reason for a machine that is exempt from remediation.
	RemediationSkipped = "RemediationSkipped"
)
