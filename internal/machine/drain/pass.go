package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// sendTime is how long a pass sends evictions before it releases its slot and its worker to other drains.
const sendTime = 2 * time.Second

// checkInline checks a node on behalf of a caller that waits. It only reads; the workers send evictions.
func (c *Controller) checkInline(ctx context.Context, r *record, request Request) {
	_, decision, err := c.planDrain(ctx, r, request)
	switch {
	case isDenial(err):
		c.reportDenial(r, request, err)
	case err != nil:
		c.reportError(r, err)
	case decision.Done:
		c.finish(r, request, v1beta1.ReasonDrained, drainedMessage(decision))
	default:
		c.reportProgress(r, request, decision)
	}
}

// passDrain checks a node, sends what is due, and returns the time of the next pass. It returns 0 if the drain is done.
func (c *Controller) passDrain(ctx context.Context, r *record, request Request) (next time.Duration, err error) {
	queued := false
	defer func() {
		if !queued {
			c.evictions.Withdraw(request.Machine)
		}
		if err != nil {
			c.reportError(r, err)
		}
	}()
	pods, decision, err := c.planDrain(ctx, r, request)
	if isDenial(err) {
		return c.reportDenial(r, request, err), nil
	}
	if err != nil {
		return 0, err
	}
	if c.outdated(&request, nil) {
		// The check may have waited until the outage was over.
		c.triggers.Enqueue(request.Machine)
		return 0, nil
	}
	r.drainPass.denials = 0
	if decision.Done {
		c.finish(r, request, v1beta1.ReasonDrained, drainedMessage(decision))
		return 0, nil
	}
	next = decision.Next
	if slices.ContainsFunc(decision.Steps, Step.due) {
		node, err := c.node(ctx, request)
		if err != nil {
			return 0, err
		}
		if node == nil {
			c.finish(r, request, v1beta1.ReasonSkipped, "The Node no longer exists.")
			return 0, nil
		}
		if _, announced := c.options.Signals.Of(node); request.Announced && !announced {
			c.triggers.Enqueue(request.Machine) // The Machine reconciler will read the Node again.
			return maxRecheck, nil
		}
		var idle bool
		if queued, idle, err = c.send(ctx, r, request, pods, decision.Steps); err != nil {
			return 0, err
		}
		if queued || idle {
			// Another check before there is a free slot would be useless.
			next = max(next, maxRecheck)
		}
	}
	if wait := c.reportProgress(r, request, decision); wait > 0 {
		next = min(next, wait)
	}
	return next, nil
}

// planDrain reads the inputs of the plan and calls Plan.
func (c *Controller) planDrain(ctx context.Context, r *record, request Request) ([]corev1.Pod, Decision, error) {
	pods, err := c.podsOn(ctx, request.Node)
	if err != nil {
		return nil, Decision{}, err
	}
	orphaned, err := c.daemonSets.orphaned(ctx, pods)
	if err != nil {
		return nil, Decision{}, err
	}
	pass := &r.drainPass
	pass.attempts = c.currentAttempts(r, pods)
	now := c.options.Clock.Now()
	pass.tracker.observe(pods, now)
	decision := Plan(Input{
		Pods:          pods,
		Now:           now,
		Start:         request.Start,
		Deadline:      request.Deadline,
		NodeReachable: request.NodeReachable,
		NotReadySince: request.NotReadySince,
		Orphaned:      orphaned,
		Successors:    pass.tracker.successors,
		Attempts:      pass.attempts,
		RecheckAfter:  pass.recheck,
	})
	pass.recheck = decision.RecheckAfter
	if l := log.FromContext(ctx).V(1); l.Enabled() {
		for _, s := range decision.Steps {
			l.Info("Plan", "pod", s.Pod.String(), "action", s.Action, "why", s.Why)
		}
	}
	return pods, decision, nil
}

func (c *Controller) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.options.Target.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %q: %w", node, err)
	}
	return pods.Items, nil
}

// currentAttempts returns the results of earlier attempts for pods that still exist. A pod whose budget has changed may
// be tried again at once.
func (c *Controller) currentAttempts(r *record, pods []corev1.Pod) map[types.UID]Attempt {
	triggered := c.drainStates.takeTriggered(r)
	attempts := make(map[types.UID]Attempt, len(r.drainPass.attempts))
	for i := range pods {
		try, tried := r.drainPass.attempts[pods[i].UID]
		if !tried {
			continue
		}
		if triggered[pods[i].UID] && try.Deleting.IsZero() {
			try.NotBefore = time.Time{}
		}
		attempts[pods[i].UID] = try
	}
	return attempts
}

// node returns the current Node, or nil if it no longer exists. Another Node may have taken its name; its pods must not
// be evicted.
func (c *Controller) node(ctx context.Context, request Request) (*corev1.Node, error) {
	var node corev1.Node
	err := c.options.Target.Get(ctx, types.NamespacedName{Name: request.Node}, &node)
	switch {
	case apierrors.IsNotFound(err), err == nil && request.NodeUID != "" && node.UID != request.NodeUID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node %q: %w", request.Node, err)
	}
	return &node, nil
}

// due reports whether an eviction or deletion is to be sent for this step.
func (s Step) due() bool {
	return s.Action == Evict || s.Action == Delete
}

// send sends what is due, one call after another: deletions, then evictions. queued is true if there is no free slot
// for evictions. idle is true if nothing was sent because all of the pods are in slow namespaces, for which enough
// calls are in progress.
func (c *Controller) send(
	ctx context.Context, r *record, request Request, pods []corev1.Pod, steps []Step,
) (queued, idle bool, err error) {
	budgets := budgetsByNamespace{reader: c.options.BudgetReader}
	byUID := make(map[types.UID]*corev1.Pod, len(pods))
	for i := range pods {
		byUID[pods[i].UID] = &pods[i]
	}
	started, hasSlot, sent, skipped := c.options.Clock.Now(), false, false, false
	defer func() {
		if hasSlot {
			c.evictions.Release(request.Machine)
		}
	}()

	for _, action := range []Action{Delete, Evict} {
		for _, s := range c.calls.slowLast(steps, action, started) {
			if c.options.Clock.Since(started) >= sendTime || !c.drainStates.inProgress(request.Machine, r) {
				c.work.Enqueue(request.Machine)
				return false, false, nil
			}
			now := c.options.Clock.Now()
			begun, allowed := c.calls.begin(s.Pod.Namespace, action, now)
			if !allowed {
				skipped = true
				continue
			}
			if action == Evict && !hasSlot {
				if hasSlot = c.evictions.AcquireBeyond(request.Machine, c.calls.hanging(now)); !hasSlot {
					c.calls.cancel(begun)
					return true, false, nil
				}
			}
			sent = true
			if err := c.sendOne(ctx, r, request, s, begun, byUID[s.UID], &budgets); err != nil {
				return false, false, err
			}
		}
	}
	return false, skipped && !sent, nil
}

// patience returns the time limit of one eviction or deletion. It is long, because a call that is cut off may never
// complete, but it leaves time for other calls if the drain has only seconds.
func (r Request) patience(now time.Time) time.Duration {
	if r.Deadline.IsZero() {
		return callTimeout
	}
	return min(callTimeout, max(r.Deadline.Sub(now)/4, slowCall))
}

// sendOne evicts or deletes one pod and remembers the result. begun is the call that calls.begin returned. sendOne
// returns an error only if the API server did not answer.
func (c *Controller) sendOne(ctx context.Context, r *record, request Request, s Step, begun call, pod *corev1.Pod,
	budgets *budgetsByNamespace) error {
	send, verb := c.evict, "evict"
	if s.Action == Delete {
		send, verb = c.delete, "delete"
	}
	err := send(ctx, s, request.patience(begun.began))
	now := c.options.Clock.Now()
	c.calls.end(begun, now)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	result, try := resultOf(s.Action, err, r.drainPass.attempts[s.UID], now)
	c.metrics.count(result)
	logger := log.FromContext(ctx).V(1)
	logger.Info("Sent", "verb", verb, "pod", s.Pod.String(), "result", result, "error", try.Why)
	if try.Failures == 0 {
		delete(r.drainPass.attempts, s.UID)
		r.drainPass.tracker.recordEviction(pod, now)
		return nil
	}
	if s.Action == Evict && (result == blocked || result == failed) && answered(err) {
		all, budgetsErr := budgets.in(ctx, s.Pod.Namespace)
		if budgetsErr != nil {
			// The rejection is still valid; only its explanation lacks the budgets.
			logger.Info("Cannot read PodDisruptionBudgets", "error", budgetsErr.Error())
		}
		explain(&try, result, assess(pod, all))
	}
	r.drainPass.attempts[s.UID] = try
	if !answered(err) {
		return fmt.Errorf("%s pod %s: %w", verb, s.Pod, err)
	}
	return nil
}

// explain adds the PodDisruptionBudgets of a pod to the result of its eviction. A failure other than a budget's
// rejection is related to budgets only if several of them select the pod.
func explain(try *Attempt, result result, v assessment) {
	if result != blocked && len(v.budgets) < 2 {
		return
	}
	try.Refused, try.Budgets = true, v.budgets
	if v.never != "" {
		try.Never, try.Why = true, v.never
	}
}

// budgetsOf returns the budget for which each refused pod waits, if it is a single one.
func budgetsOf(steps []Step, attempts map[types.UID]Attempt) map[types.UID]types.NamespacedName {
	var budgets map[types.UID]types.NamespacedName
	for _, s := range steps {
		if try := attempts[s.UID]; s.pending() && len(try.Budgets) == 1 {
			if budgets == nil {
				budgets = map[types.UID]types.NamespacedName{}
			}
			budgets[s.UID] = types.NamespacedName{Namespace: s.Pod.Namespace, Name: try.Budgets[0]}
		}
	}
	return budgets
}
