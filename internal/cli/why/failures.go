package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// lately is how long people are reminded of a failure that is repaired. Programs and -o wide get all that the status
// keeps.
const lately = 24 * time.Hour

// Failure is a machine that failed, could not be launched or was found unhealthy. It may have been repaired or replaced
// since.
type Failure struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Machine    string `json:"machine"`
	Reason     string `json:"reason,omitempty"`
	// Message is what the controller or the cloud says of it.
	Message string `json:"message,omitempty"`
	// Since is when the failure began.
	Since *time.Time `json:"since,omitempty"`
}

// FailuresOf returns the recent failures that the status of a deployment keeps, newest first.
func FailuresOf(d *v1beta1.MachineDeployment) []Failure {
	failures := make([]Failure, 0, len(d.Status.RecentFailures))
	for _, f := range d.Status.RecentFailures {
		failure := Failure{Namespace: d.Namespace, Deployment: d.Name, Machine: f.Name, Reason: f.Reason, Message: f.Message}
		if f.Time != nil {
			failure.Since = at(f.Time.Time)
		}
		failures = append(failures, failure)
	}
	SortFailures(failures)
	return failures
}

// SortFailures orders failures of several deployments, newest first.
func SortFailures(failures []Failure) {
	slices.SortStableFunc(failures, func(a, b Failure) int {
		return cmp.Or(b.since().Compare(a.since()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Machine, b.Machine))
	})
}

// Lately returns the failures that people are reminded of at a time: those of the last 24 hours.
func Lately(failures []Failure, now time.Time) []Failure {
	return slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool { return now.Sub(f.since()) > lately })
}

func (f Failure) since() time.Time {
	if f.Since == nil {
		return time.Time{}
	}
	return *f.Since
}

// Line is the failure in a line, as of a time.
func (f Failure) Line(now time.Time) string {
	line := "machine " + f.Machine
	if f.Since != nil {
		line += fmt.Sprintf(", %s ago", printer.Age(now, *f.Since))
	}
	return line + ": " + printer.Clean(f.Reason+": "+f.Message)
}
