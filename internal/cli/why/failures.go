package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// recentPeriod is how long text output shows a failure. JSON output and -o wide show all failures.
const recentPeriod = 24 * time.Hour

// Failure is a machine that failed, was not launched or was unhealthy. Failure may have recovered or been replaced
// since.
type Failure struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Machine    string `json:"machine"`
	Reason     string `json:"reason,omitempty"`
	// Message is the message of the controller or the cloud.
	Message string `json:"message,omitempty"`
	// Since holds the time when the failure began.
	Since *time.Time `json:"since,omitempty"`
}

// FailuresOf returns the failures in the status of a deployment, newest first.
func FailuresOf(d *v1beta1.MachineDeployment) []Failure {
	failures := make([]Failure, 0, len(d.Status.RecentFailures))
	for _, f := range d.Status.RecentFailures {
		failure := Failure{Namespace: d.Namespace, Deployment: d.Name, Machine: f.Name, Reason: f.Reason, Message: f.Message}
		if f.Time != nil {
			failure.Since = inUTC(f.Time.Time)
		}
		failures = append(failures, failure)
	}
	SortFailures(failures)
	return failures
}

// SortFailures sorts failures of any deployments, newest first.
func SortFailures(failures []Failure) {
	slices.SortStableFunc(failures, func(a, b Failure) int {
		return cmp.Or(b.since().Compare(a.since()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Machine, b.Machine))
	})
}

// RecentFailures returns the failures of the last 24 hours.
func RecentFailures(failures []Failure, now time.Time) []Failure {
	return slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool { return now.Sub(f.since()) > recentPeriod })
}

func (f Failure) since() time.Time {
	if f.Since == nil {
		return time.Time{}
	}
	return *f.Since
}

// Line describes the failure in one line, with its age.
func (f Failure) Line(now time.Time) string {
	line := "machine " + f.Machine
	if f.Since != nil {
		line += fmt.Sprintf(", %s ago", printer.Age(now, *f.Since))
	}
	return line + ": " + printer.Sanitize(f.Reason+": "+f.Message)
}
