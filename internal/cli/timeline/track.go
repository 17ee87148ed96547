package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/internal/cli/why"
)

// eventLife is how long API servers keep events by default.
const eventLife = time.Hour

// track lays the steps of an operation one after the other.
type track struct {
	kind    Kind
	start   time.Time
	steps   []Step
	going   bool
	unknown []string
}

func begin(kind Kind, start time.Time) *track { return &track{kind: kind, start: start.UTC()} }

// at is where the last step ended.
func (t *track) at() time.Time {
	if len(t.steps) == 0 {
		return t.start
	}
	return *t.steps[len(t.steps)-1].End
}

// until ends a step. A time before the last step's end belongs to something earlier: the step is left out, and what
// follows has its time.
func (t *track) until(end time.Time, s Step) bool {
	if end.IsZero() || end.Before(t.at()) {
		return false
	}
	end = end.UTC()
	s.Start, s.End = t.at(), &end
	t.steps = append(t.steps, s)
	return true
}

// goesOn lays the step that has not ended. It is the last one.
func (t *track) goesOn(s Step) {
	s.Start = t.at()
	t.steps, t.going = append(t.steps, s), true
}

func (t *track) has(name string) bool {
	return slices.ContainsFunc(t.steps, func(s Step) bool { return s.Name == name })
}

func (t *track) notKnown(format string, args ...any) {
	t.unknown = append(t.unknown, fmt.Sprintf(format, args...))
}

// finish measures the steps and gives each the events that fell into it.
func (t *track) finish(o Observed) Operation {
	op := Operation{Kind: t.kind, Start: t.start, Steps: t.steps, Unknown: t.unknown}
	end := o.Now
	if !t.going {
		end = t.at()
		op.End = &end
	}
	total := max(end.Sub(t.start), 0)
	op.Seconds = total.Seconds()
	for i := range op.Steps {
		s := &op.Steps[i]
		ends := o.Now
		if s.End != nil {
			ends = *s.End
		}
		took := max(ends.Sub(s.Start), 0)
		s.Seconds = took.Seconds()
		if total > 0 {
			s.Share = float64(took) / float64(total)
		}
		last := i == len(op.Steps)-1
		for _, e := range o.Events {
			if !e.Last.Before(s.Start) && (e.Last.Before(ends) || last && !e.Last.After(ends)) {
				s.Events = append(s.Events, Occurrence{e.Last.UTC(), max(e.Count, 1), e.Reason, e.Message})
			}
		}
		slices.SortStableFunc(s.Events, func(a, b Occurrence) int {
			return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Reason, b.Reason))
		})
	}
	switch expired := o.Now.Add(-eventLife); {
	case o.EventsUnread:
		op.Unknown = append(op.Unknown, "Events could not be read: errors that were tried again are missing here.")
	case t.start.Before(expired):
		op.Unknown = append(op.Unknown, fmt.Sprintf(
			"Events expire, by default after an hour: errors from before %s that were tried again may be missing here.",
			stamp(expired)))
	}
	return op
}

// condition returns one of the machine's.
func (o Observed) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(o.Machine.Status.Conditions, kind)
}

// since returns when a condition became True, zero if it is not.
func (o Observed) since(kind string) time.Time {
	if c := o.condition(kind); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// blocked is the step that a condition keeps from ending.
func blocked(name string, c *metav1.Condition) Step {
	return Step{Name: name, WaitedFor: why.MeaningOf(c.Type, c.Reason).Explanation, Reason: c.Reason, Message: c.Message}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
