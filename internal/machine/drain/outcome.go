package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"machinist.dev/machinist/api/v1beta1"
)

// maxNamed is how many pods or volumes a message names.
const maxNamed = 5

// finish records that a drain is done.
func (c *Controller) finish(r *record, request Request, reason, message string) {
	now := c.options.Clock.Now()
	c.drainStates.setDrainOutcome(r, Outcome{Done: true, Reason: reason, Message: message, LastPodGone: now})
	c.rejections.set(request.Machine, nil, now)
	c.evictions.Withdraw(request.Machine)
}

// reportProgress records where a drain stands that is not done. It returns when there will be something new to write
// down that is held back now, 0 if there is none.
func (c *Controller) reportProgress(r *record, request Request, decision Decision) (wait time.Duration) {
	now := c.options.Clock.Now()
	pass := &r.drainPass
	all := blockers(decision.Steps, pass.tries)
	wait = pass.report.offer(drainingReason(decision, all), drainingMessage(request, decision, all), about(all), now)
	c.drainStates.setDrainOutcome(r, Outcome{Reason: pass.report.reason, Message: pass.report.message, Blocked: all})

	c.rejections.set(request.Machine, budgetsOf(decision.Steps, pass.tries), now)
	if !c.drainStates.wanted(request.Machine, r) {
		c.rejections.set(request.Machine, nil, now)
	}
	return wait
}

// reportError records that a drain cannot go on at the moment. What was known of blocking pods is kept.
func (c *Controller) reportError(r *record, err error) {
	report := &r.drainPass.report
	report.offer(v1beta1.ReasonDrainError, shorten(err.Error()), "", c.options.Clock.Now())
	before := c.drainStates.drainOutcomeOf(r)
	c.drainStates.setDrainOutcome(r, Outcome{Reason: report.reason, Message: report.message, Blocked: before.Blocked})
}

// isDenial shows whether the API server refuses to tell what the drain has to know. That is no outage: it lasts until
// somebody gives the permission.
func isDenial(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// reportDenial records that the drain may not see its pods, and returns when to try again. Nothing is evicted unseen,
// and the deadline does not change that: it limits how long pods may stay that are known, and says nothing of those
// that are not. So the instance lives until a person gives the permission or forces the deletion.
func (c *Controller) reportDenial(r *record, request Request, err error) (next time.Duration) {
	now := c.options.Clock.Now()
	pass := &r.drainPass
	next = min(firstRetry<<min(pass.denials, 10), idleRecheck)
	pass.denials++

	message, overdue := fmt.Sprintf("What is on node %s may not be read, and no pod is evicted unseen.",
		request.Node), false
	if end := (deadline{start: request.Start, end: request.Deadline}); end.over(now) {
		overdue = true
		message = fmt.Sprintf("The deadline has passed, but what is on node %s may not be read, and no pod is killed unseen.",
			request.Node)
	} else if left := request.Deadline.Sub(now); !request.Deadline.IsZero() {
		next = min(next, left)
	}
	message += " " + shorten(err.Error()) + ". The annotation " + v1beta1.AnnotationForceDelete + " goes on without."
	wait := pass.report.offer(v1beta1.ReasonDrainError, message, fmt.Sprint("denied ", overdue), now)
	if wait > 0 {
		next = min(next, wait)
	}
	c.drainStates.setDrainOutcome(r, Outcome{Denied: true, Reason: pass.report.reason, Message: pass.report.message})
	return next
}

func drainingReason(d Decision, all []Blocker) string {
	switch {
	case d.Forced:
		return v1beta1.ReasonDrainForced
	case slices.ContainsFunc(all, func(b Blocker) bool { return b.Refused }):
		return v1beta1.ReasonBlockedByDisruptionBudget
	}
	return v1beta1.ReasonDraining
}

func drainingMessage(request Request, d Decision, all []Blocker) string {
	message := fmt.Sprintf("Evicting the pods of node %s.", request.Node)
	if d.Forced {
		message = fmt.Sprintf("The deadline is near: deleting the pods of node %s.", request.Node)
	}
	if len(all) == 0 {
		return message
	}
	return message + " In the way: " + named(all, Blocker.String) + "."
}

func drainedMessage(d Decision) string {
	left := slices.DeleteFunc(slices.Clone(d.Steps), func(s Step) bool { return !s.Left })
	if len(left) == 0 {
		return "No pod is left to evict."
	}
	return "Left behind: " + named(left, func(s Step) string { return fmt.Sprintf("%s (%s)", s.Pod, s.Why) }) + "."
}

// String names the pod and what holds it up.
func (b Blocker) String() string {
	why := b.Why
	if len(b.Budgets) > 0 {
		budgets := "PodDisruptionBudget " + strings.Join(b.Budgets, ", ")
		if b.Never {
			why = budgets + " can never allow it: " + why
		} else {
			why = budgets + ": " + why
		}
	}
	return fmt.Sprintf("%s (%s)", b.Pod, why)
}

// about identifies a set of blocking pods and budgets, whatever is said about them in detail.
func about(all []Blocker) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintln(&b, one.Pod, one.Budgets, one.Never)
	}
	return b.String()
}

// named lists the first few of all.
func named[T any](all []T, name func(T) string) string {
	var names []string
	for _, one := range all[:min(len(all), maxNamed)] {
		names = append(names, name(one))
	}
	list := strings.Join(names, "; ")
	if more := len(all) - maxNamed; more > 0 {
		list += fmt.Sprintf("; and %d more", more)
	}
	return list
}

// rewriteInterval is the shortest time between two changes of a message while a machine waits.
const rewriteInterval = 30 * time.Second

// report is what a machine's condition says while it waits. A new reason is reported at once: it decides what people
// and other controllers do. The words for the same reason are rewritten only when what is in the way changes, and no
// more often than every rewriteInterval, since each change costs a write.
type report struct {
	reason, message string

	about     string // what the message is about
	rewritten time.Time
}

// offer replaces the report if it may. Otherwise it returns how long it has to wait, 0 if there is nothing to replace.
// The first report is not a change: the one that follows it may come at once.
func (r *report) offer(reason, message, about string, now time.Time) time.Duration {
	switch {
	case r.reason == "":
	case r.reason != reason:
		r.rewritten = now
	case r.about == about:
		return 0
	default:
		if wait := r.rewritten.Add(rewriteInterval).Sub(now); wait > 0 && !r.rewritten.IsZero() {
			return min(wait, rewriteInterval)
		}
		r.rewritten = now
	}
	r.reason, r.message, r.about = reason, message, about
	return 0
}
