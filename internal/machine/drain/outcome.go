package drain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"machinist.dev/machinist/api/v1beta1"
)

const maxNamed = 5

func (c *Controller) finish(r *record, reason, message string) {
	c.records.setOutcome(&r.drained, Outcome{IsDone: true, Reason: reason, Message: message,
		LastPodGone: c.options.Clock.Now()})
}

// reportProgress records the progress of a drain that is not done. It returns the time until the condition may show the
// new message, or 0 if the message is not delayed.
func (c *Controller) reportProgress(r *record, request Request, decision Decision) (wait time.Duration) {
	all, report := blockers(decision.Steps, r.drainPass.attempts), &r.drainPass.report
	wait = report.update(drainingReason(decision, all), drainingMessage(request, decision, all), blockersKey(all),
		c.options.Clock.Now())
	c.records.setOutcome(&r.drained, Outcome{Reason: report.reason, Message: report.message, Blockers: all})
	return wait
}

// reportError records that a pass failed. The blocking pods and the attached volumes of the previous outcome are kept.
func (c *Controller) reportError(outcome *Outcome, report *report, err error) {
	report.update(v1beta1.ReasonDrainError, shorten(err.Error()), "", c.options.Clock.Now())
	before := c.records.outcome(outcome)
	c.records.setOutcome(outcome, Outcome{Reason: report.reason, Message: report.message, Blockers: before.Blockers,
		AttachedVolumes: before.AttachedVolumes})
}

// isDenial reports whether a permission of the controller is missing. Such an error is not an outage: it remains until
// an administrator grants the permission.
func isDenial(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func isAboutPods(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "pods"
}

// reportDenial records that the controller may not read the pods of the node, and returns the time until the next
// attempt. The controller never evicts pods that it cannot see, even after the deadline. The instance remains until an
// administrator grants the permission or forces the deletion.
func (c *Controller) reportDenial(r *record, request Request, err error) (next time.Duration) {
	now := c.options.Clock.Now()
	pass := &r.drainPass
	next = min(firstRetry<<min(pass.denials, 10), idleRecheck)
	pass.denials++

	rule := "Machinist has no permission to list the pods of node %s, and does not %s pods that it cannot see."
	if !isAboutPods(err) {
		rule = "Machinist has no permission to read an object that decides about the pods of node %s, and does not %s pods without it."
	}
	message, overdue := fmt.Sprintf(rule, request.Node, "evict"), false
	if end := (deadline{start: request.Start, end: request.Deadline}); end.isOver(now) {
		overdue = true
		message = "The drain deadline has passed, but " + fmt.Sprintf(rule, request.Node, "delete")
	} else if left := request.Deadline.Sub(now); !request.Deadline.IsZero() {
		next = min(next, left)
	}
	message += " The error is: " + shorten(err.Error()) + ". Grant the permission, or set the annotation " +
		v1beta1.AnnotationForceDelete + " to delete the machine without a drain."
	wait := pass.report.update(v1beta1.ReasonDrainError, message, fmt.Sprint("denied ", overdue), now)
	if wait > 0 {
		next = min(next, wait)
	}
	c.records.setOutcome(&r.drained, Outcome{PermissionDenied: true, Reason: pass.report.reason,
		Message: pass.report.message})
	return next
}

func drainingReason(d Decision, all []Blocker) string {
	switch {
	case d.IsForced:
		return v1beta1.ReasonDrainForced
	case slices.ContainsFunc(all, func(b Blocker) bool { return b.IsRefused }):
		return v1beta1.ReasonBlockedByDisruptionBudget
	case onlyAwaitsCompletion(d, all):
		return v1beta1.ReasonWaitingForCompletion
	}
	return v1beta1.ReasonDraining
}

// onlyAwaitsCompletion reports whether all pods that block the drain must complete, and no other pod is being evicted.
func onlyAwaitsCompletion(d Decision, all []Blocker) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(b Blocker) bool { return b.Rule == "" }) &&
		!slices.ContainsFunc(d.Steps, func(s Step) bool { return s.due() || s.Action == ActionWait || s.awaitsVolumes })
}

func drainingMessage(request Request, d Decision, all []Blocker) string {
	message := fmt.Sprintf("Evicting the pods of node %s.", request.Node)
	if onlyAwaitsCompletion(d, all) {
		message = fmt.Sprintf("Waiting for pods of node %s to complete.", request.Node)
	}
	if d.IsForced {
		message = fmt.Sprintf("The drain deadline is near: deleting the pods of node %s.", request.Node)
	}
	if len(all) == 0 {
		return message
	}
	return message + " Pods that block the drain: " + joinNames(all, Blocker.String) + "."
}

func drainedMessage(d Decision) string {
	left := slices.DeleteFunc(slices.Clone(d.Steps), func(s Step) bool { return !s.IsAbandoned })
	skipped := slices.DeleteFunc(slices.Clone(d.Steps), func(s Step) bool {
		return s.Action != ActionSkip || s.Rule == ""
	})
	left = append(left, skipped...)
	if len(left) == 0 {
		return "No pod is left to evict."
	}
	return "These pods were left on the node: " +
		joinNames(left, func(s Step) string { return fmt.Sprintf("%s (%s)", s.Pod, s.Explanation) }) + "."
}

// String returns the name of the pod and the reason why it blocks the drain.
func (b Blocker) String() string {
	why := b.Explanation
	if len(b.Budgets) > 0 {
		budgets := "PodDisruptionBudget " + strings.Join(b.Budgets, ", ")
		if b.NeverAllowed {
			why = budgets + " can never allow the eviction: " + why
		} else {
			why = budgets + ": " + why
		}
	}
	return fmt.Sprintf("%s (%s)", b.Pod, why)
}

// blockersKey returns a string that identifies a set of blocking pods and their budgets. The string does not depend on
// the explanation of each blocker, which changes more often.
func blockersKey(all []Blocker) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintln(&b, one.Pod, one.Budgets, one.NeverAllowed, one.Rule)
	}
	return b.String()
}

func joinNames[T any](all []T, name func(T) string) string {
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

// report contains the reason and message of a machine's condition while the machine waits. A new reason is reported
// at once, because users and other controllers act on the reason. With the same reason, the message changes only if
// its subject (such as the blocking pods) changes. The message changes at most once per rewriteInterval, because each
// change causes a write.
type report struct {
	reason, message string

	subject   string // the blockers or volumes that the message lists
	rewritten time.Time
}

// update replaces the reason and message if a change is allowed now. Otherwise, update returns the remaining time. A
// report without a subject may be replaced without a delay.
func (r *report) update(reason, message, subject string, now time.Time) time.Duration {
	switch {
	case r.reason == "":
		if subject != "" {
			r.rewritten = now
		}
	case r.reason != reason:
		r.rewritten = now
	case r.subject == subject:
		return 0
	default:
		if wait := r.rewritten.Add(rewriteInterval).Sub(now); wait > 0 && !r.rewritten.IsZero() {
			return min(wait, rewriteInterval)
		}
		r.rewritten = now
	}
	r.reason, r.message, r.subject = reason, message, subject
	return 0
}
