package why

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"machinist.dev/machinist/internal/cli/printer"
)

// leaseLeniency is how much later than its time a lease may be renewed until nobody counts as running.
const leaseLeniency = 5 * time.Second

// Process is one of Machinist's processes as its lease tells of it.
type Process struct {
	// Name is that of its lease.
	Name string `json:"name"`
	// Known says that there is such a lease and that it could be read; the rest means nothing otherwise.
	Known bool `json:"known"`
	// Running says that one holds the lease and renews it.
	Running bool `json:"running"`
	// Seen is when the lease was last renewed.
	Seen *time.Time `json:"seen,omitempty"`
	// Searched are the namespaces in which the lease was looked for and is not.
	Searched []string `json:"searched,omitempty"`
}

// Judge reads a lease.
func Judge(lease *coordinationv1.Lease, now time.Time) Process {
	p := Process{Name: lease.Name, Known: true}
	if lease.Spec.RenewTime == nil {
		return p
	}
	p.Seen = at(lease.Spec.RenewTime.Time)
	lasts := 15 * time.Second
	if lease.Spec.LeaseDurationSeconds != nil {
		lasts = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	blocked := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	p.Running = blocked && now.Sub(*p.Seen) <= lasts+leaseLeniency
	return p
}

// Trouble says that the process does not run, or that this is not known, and more about it; both are empty if it runs.
func (p Process) Trouble(now time.Time) (what, more string) {
	switch {
	case p.Running:
	case p.Known && p.Seen != nil:
		return "No process " + p.Name + " is running",
			fmt.Sprintf(", for %s now: what is written here is what it last saw.", printer.Age(now, *p.Seen))
	case p.Known:
		return "No process " + p.Name + " is running.", ""
	case len(p.Searched) > 0:
		return "No lease of " + p.Name,
			" in " + strings.Join(p.Searched, ", ") + ": is it running? (--system-namespace says where its lease is.)"
	}
	return "", ""
}

// absent returns the finding that a process is not running, if that is known.
func (p Process) absent(about, what string) []Finding {
	switch {
	case p.Known && !p.Running:
		f := Finding{
			About: about, Reason: NoProcess, Since: p.Seen,
			What: fmt.Sprintf("No process %s is running, so nothing is done about it.", p.Name),
			Ends: "It goes on when the process is back; what is written below is what it last saw.",
			Do:   fmt.Sprintf("Start %s, or see why it does not stay up or does not reach this cluster.", p.Name),
		}
		return []Finding{f}
	case !p.Known && len(p.Searched) > 0:
		return []Finding{{
			About: about, Reason: NoProcess,
			What: fmt.Sprintf("It is not known whether a process %s is running: it has no lease in %s.", p.Name,
				strings.Join(p.Searched, ", ")),
			Ends: cmp.Or(what, "If none runs, nothing is done."),
			Do:   "Start one. If it runs with another --leader-election-namespace, name that with --system-namespace.",
		}}
	}
	return nil
}

// Reasons of findings that no condition tells.
const (
	// NoProcess is the reason for a process that is not running.
	NoProcess = "NoProcess"
	// Unobserved is that of a change that no process has acted upon yet.
	Unobserved = "Unobserved"
	// OwnerDeleting is that of a machine whose owner is being deleted.
	OwnerDeleting = "OwnerDeleting"
	// OtherFinalizers is that of an object that finalizers of other controllers hold.
	OtherFinalizers = "ForeignFinalizers"
	// NoOwner is that of a machine that nobody replaces.
	NoOwner = "NoOwner"
	// NoBudget is that of a machine whose deployment replaces none.
	NoBudget = "NoBudget"
	// DisruptionDenied is that of a machine that a disruption budget, or an annotation on it, does not let be replaced.
	DisruptionDenied = "DisruptionDenied"
	// RemediationSkipped is that of a machine that is exempt from remediation.
	RemediationSkipped = "RemediationSkipped"
)
