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

// eventTTL is how long API servers keep events by default.
const eventTTL = time.Hour

type track struct {
	kind    Kind
	start   time.Time
	steps   []Step
	ongoing bool
	unknown []string
}

func begin(kind Kind, start time.Time) *track { return &track{kind: kind, start: start.UTC()} }

// end returns the time at which the last step ended, and the next step starts.
func (t *track) end() time.Time {
	if len(t.steps) == 0 {
		return t.start
	}
	return *t.steps[len(t.steps)-1].End
}

// addStep adds a step that ended at the given time. If the step ended before the last recorded step, it belongs to an
// earlier operation. In this case, addStep ignores the step and returns false.
func (t *track) addStep(end time.Time, s Step) bool {
	if end.IsZero() || end.Before(t.end()) {
		return false
	}
	end = end.UTC()
	s.Start, s.End = t.end(), &end
	t.steps = append(t.steps, s)
	return true
}

func (t *track) endWithOngoing(s Step) {
	s.Start = t.end()
	t.steps, t.ongoing = append(t.steps, s), true
}

func (t *track) has(name string) bool {
	return slices.ContainsFunc(t.steps, func(s Step) bool { return s.Name == name })
}

func (t *track) addUnknown(format string, args ...any) {
	t.unknown = append(t.unknown, fmt.Sprintf(format, args...))
}

func (t *track) finish(o Facts) Operation {
	op := Operation{Kind: t.kind, Start: t.start, Steps: t.steps, Unknown: t.unknown}
	end := o.Now
	if !t.ongoing {
		end = t.end()
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
	switch expired := o.Now.Add(-eventTTL); {
	case o.EventsUnread:
		op.Unknown = append(op.Unknown, "Events could not be read, so errors that Machinist has retried are missing.")
	case t.start.Before(expired):
		op.Unknown = append(op.Unknown, fmt.Sprintf(
			"Events expire, by default after an hour. Errors before %s that Machinist has retried may be missing.",
			formatTime(expired)))
	}
	return op
}

func (o Facts) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(o.Machine.Status.Conditions, kind)
}

// trueSince returns the time at which a condition became True. It returns zero if the condition is not True.
func (o Facts) trueSince(kind string) time.Time {
	if c := o.condition(kind); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// blockedStep returns a step in progress. The condition explains what the step waits for.
func blockedStep(name string, c *metav1.Condition) Step {
	return Step{Name: name, WaitedFor: why.MeaningOf(c.Type, c.Reason).Explanation, Reason: c.Reason, Message: c.Message}
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
