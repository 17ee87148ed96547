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

// Moment is something that happened to a machine.
type Moment struct {
	// At is when it happened; of an event that was repeated, the last time.
	At time.Time
	// First is when it happened first, and Count how often, of an event that was repeated.
	First time.Time
	Count int32
	// Source is where it is written: Machine, Condition, Operation, Event or Deployment.
	Source string
	// What happened, in a few words, and Detail, the words of the controller or the cloud.
	What, Detail string
	// Trouble says that it was no step of an ordinary life.
	Trouble bool
}

// Event is an event about an object, of either of Kubernetes' kinds of events.
type Event struct {
	First, Last     time.Time
	Count           int32
	Warning         bool
	Reason, Message string
	// Reporter is the controller that wrote it.
	Reporter string
}

// History returns what happened to a machine, newest first, out of the machine, its events and the recent failures of
// its deployment.
func History(m *v1beta1.Machine, events []Event, failures []Failure) []Moment {
	var t []Moment
	add := func(at time.Time, source, what, detail string, trouble bool) {
		if !at.IsZero() {
			t = append(t, Moment{At: at.UTC(), Source: source, What: what, Detail: detail, Trouble: trouble})
		}
	}
	add(m.CreationTimestamp.Time, "Machine", "Created", "", false)
	if i := m.Status.Instance; i != nil && i.LaunchTime != nil {
		add(i.LaunchTime.Time, "Machine", "The provider began to make the instance", m.Spec.ProviderID, false)
	}
	if l := m.Status.Launch; l != nil && l.NoCapacitySince != nil {
		add(l.NoCapacitySince.Time, "Machine", "The provider accepted an instance that it has no capacity for", "", true)
	}
	if due := m.Status.InterruptionTime; due != nil {
		add(due.Time, "Machine", "The cloud reclaims the instance", "", true)
	}
	if m.DeletionTimestamp != nil {
		add(m.DeletionTimestamp.Time, "Machine", "Deletion was asked for", "", false)
	}
	for i := range m.Status.Conditions {
		c := &m.Status.Conditions[i]
		add(c.LastTransitionTime.Time, "Condition", fmt.Sprintf("%s became %s: %s", c.Type, c.Status, c.Reason),
			cmp.Or(c.Message, MeaningOf(c.Type, c.Reason).Explanation), troubles(c))
	}
	if o := m.Status.LastOperation; o != nil && o.LastUpdateTime != nil {
		what := fmt.Sprintf("%s %s", o.Type, strings.ToLower(string(o.State)))
		if o.Attempts > 1 {
			what += fmt.Sprintf(", after %d attempts", o.Attempts)
		}
		add(o.LastUpdateTime.Time, "Operation", what, o.Description, o.State == v1beta1.OperationFailed)
	}
	for _, e := range events {
		t = append(t, Moment{At: e.Last.UTC(), First: e.First.UTC(), Count: e.Count, Source: "Event", What: e.Reason,
			Detail: e.Message, Trouble: e.Warning})
	}
	for _, f := range failures {
		if f.Machine == m.Name && f.Namespace == m.Namespace && f.Since != nil {
			add(*f.Since, "Deployment", "Failed: "+f.Reason, f.Message, true)
		}
	}
	slices.SortStableFunc(t, func(a, b Moment) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Source, b.Source), cmp.Compare(a.What, b.What))
	})
	return t
}

// troubles reports whether a condition is something that people look for: one of a machine in order that is False, or
// one that there is only because of trouble.
func troubles(c *metav1.Condition) bool {
	switch c.Type {
	case v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy, v1beta1.ConditionReady,
		v1beta1.ConditionUpToDate:
		return c.Status != metav1.ConditionTrue
	case v1beta1.ConditionInterruptionNotice, v1beta1.ConditionRemediationRequested:
		return c.Status == metav1.ConditionTrue
	}
	return false
}
