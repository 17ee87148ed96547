package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Moment is an entry in the history of a machine.
type Moment struct {
	// Time holds the time of the entry. For an event, Time holds the time of the last occurrence.
	Time time.Time
	// First and Count are the first occurrence and the number of occurrences of a repeated event.
	First time.Time
	Count int32
	// Source is the kind of record: Machine, Condition, Operation, Event or Deployment.
	Source string
	// Description holds a short description of the entry. Detail holds the message of the controller or the cloud.
	Description, Detail string
	// Trouble is true if the entry reports a problem.
	Trouble bool
}

// Event holds a Kubernetes event about an object. The API group of the event is "" or events.k8s.io.
type Event struct {
	First, Last     time.Time
	Count           int32
	Warning         bool
	Reason, Message string
	// Reporter is the controller that wrote the event.
	Reporter string
}

// History returns what happened to a machine, newest first: its own times, events, and recent failures of its
// deployment.
func History(m *v1beta1.Machine, events []Event, failures []Failure) []Moment {
	var t []Moment
	add := func(at time.Time, source, what, detail string, trouble bool) {
		if !at.IsZero() {
			t = append(t, Moment{Time: at.UTC(), Source: source, Description: what, Detail: detail, Trouble: trouble})
		}
	}
	add(m.CreationTimestamp.Time, "Machine", "Created", "", false)
	if i := m.Status.Instance; i != nil && i.LaunchTime != nil {
		add(i.LaunchTime.Time, "Machine", "The cloud started to create the instance", m.Spec.ProviderID, false)
	}
	if l := m.Status.Launch; l != nil && l.NoCapacitySince != nil {
		what := "The cloud accepted the instance, but has no capacity for it"
		if m.Labels[v1beta1.LabelPlacementDomain] != "" {
			what = "The cloud has no capacity for the instance"
		}
		add(l.NoCapacitySince.Time, "Machine", what, "", true)
	}
	if due := m.Status.InterruptionTime; due != nil {
		add(due.Time, "Machine", "The cloud reclaims the instance", "", true)
	}
	if m.DeletionTimestamp != nil {
		add(m.DeletionTimestamp.Time, "Machine", "Deletion requested", "", false)
	}
	for i := range m.Status.Conditions {
		c := &m.Status.Conditions[i]
		add(c.LastTransitionTime.Time, "Condition", fmt.Sprintf("%s became %s: %s", c.Type, c.Status, c.Reason),
			cmp.Or(c.Message, MeaningOf(c.Type, c.Reason).Explanation), isTrouble(c))
	}
	if o := m.Status.LastOperation; o != nil && o.LastUpdateTime != nil {
		what := fmt.Sprintf("%s %s", o.Type, strings.ToLower(string(o.State)))
		if o.Attempts > 1 {
			what += fmt.Sprintf(", after %d attempts", o.Attempts)
		}
		add(o.LastUpdateTime.Time, "Operation", what, o.Description, o.State == v1beta1.OperationFailed)
	}
	for _, e := range events {
		t = append(t, Moment{Time: e.Last.UTC(), First: e.First.UTC(), Count: e.Count, Source: "Event", Description: e.Reason,
			Detail: e.Message, Trouble: e.Warning})
	}
	for _, f := range failures {
		if f.Machine == m.Name && f.Namespace == m.Namespace && f.Since != nil {
			add(*f.Since, "Deployment", "Failed: "+f.Reason, f.Message, true)
		}
	}
	slices.SortStableFunc(t, func(a, b Moment) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Description, b.Description))
	})
	return t
}

func isTrouble(c *metav1.Condition) bool {
	switch c.Type {
	case v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy, v1beta1.ConditionReady,
		v1beta1.ConditionUpToDate:
		return c.Status != metav1.ConditionTrue
	case v1beta1.ConditionInterruptionNotice, v1beta1.ConditionRemediationRequested:
		return c.Status == metav1.ConditionTrue
	}
	return false
}
