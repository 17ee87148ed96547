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

// sendTime is how long a pass sends evictions before it lets others have its place and its worker.
const sendTime = 2 * time.Second

// firstRecheck checks a node on behalf of the caller, who waits. It only looks: what must be sent is the workers'.
func (c *Controller) firstRecheck(ctx context.Context, r *record, request Request) {
	_, decision, err := c.recheck(ctx, r, request)
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

// passDrain checks a node, does what is due there and returns when to come back, 0 when the drain is done.
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
	pods, decision, err := c.recheck(ctx, r, request)
	if isDenial(err) {
		return c.reportDenial(r, request, err), nil
	}
	if err != nil {
		return 0, err
	}
	if c.outdated(&request, nil) {
		// The look may have taken as long as the outage did.
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
			c.finish(r, request, v1beta1.ReasonSkipped, "The Node is gone.")
			return 0, nil
		}
		if _, announced := c.options.Signals.Of(node); request.Announced && !announced {
			c.triggers.Enqueue(request.Machine) // To see it for itself, sooner or later.
			return maxRecheck, nil
		}
		var idle bool
		if queued, idle, err = c.send(ctx, r, request, pods, decision.Steps); err != nil {
			return 0, err
		}
		if queued || idle {
			// There is no use in looking again before there is a place.
			next = max(next, maxRecheck)
		}
	}
	if wait := c.reportProgress(r, request, decision); wait > 0 {
		next = min(next, wait)
	}
	return next, nil
}

// recheck gathers what the plan needs and plans.
func (c *Controller) recheck(ctx context.Context, r *record, request Request) ([]corev1.Pod, Decision, error) {
	pods, err := c.podsOn(ctx, request.Node)
	if err != nil {
		return nil, Decision{}, err
	}
	orphaned, err := c.daemonSets.orphaned(ctx, pods)
	if err != nil {
		return nil, Decision{}, err
	}
	pass := &r.drainPass
	pass.tries = c.currentTries(r, pods)
	now := c.options.Clock.Now()
	pass.returning.observe(pods, now)
	decision := Plan(Input{
		Pods:          pods,
		Now:           now,
		Start:         request.Start,
		Deadline:      request.Deadline,
		NodeReachable: request.NodeReachable,
		NotReadySince: request.NotReadySince,
		Orphaned:      orphaned,
		Successors:    pass.returning.successors,
		Tries:         pass.tries,
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

// currentTries returns what came of earlier attempts, for pods that are still there. A pod whose budget has changed may
// be tried again at once.
func (c *Controller) currentTries(r *record, pods []corev1.Pod) map[types.UID]Try {
	triggered := c.drainStates.takeTriggered(r)
	tries := make(map[types.UID]Try, len(r.drainPass.tries))
	for i := range pods {
		try, tried := r.drainPass.tries[pods[i].UID]
		if !tried {
			continue
		}
		if triggered[pods[i].UID] && try.Deleting.IsZero() {
			try.NotBefore = time.Time{}
		}
		tries[pods[i].UID] = try
	}
	return tries
}

// node returns the Node as it is, nil if it no longer exists. Its name may belong to another one by now, whose pods
// are not ours.
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

// due shows whether there is something to send for this step.
func (s Step) due() bool {
	return s.Action == Evict || s.Action == Delete
}

// send sends what is due: deletions, then evictions as far as there is a place for them, one after the other. queued
// is true when there is none yet, idle when nothing was sent since enough calls are under way in all of the
// namespaces, which are slow.
func (c *Controller) send(
	ctx context.Context, r *record, request Request, pods []corev1.Pod, steps []Step,
) (queued, idle bool, err error) {
	budgets := budgetsByNamespace{reader: c.options.BudgetReader}
	byUID := make(map[types.UID]*corev1.Pod, len(pods))
	for i := range pods {
		byUID[pods[i].UID] = &pods[i]
	}
	started, placed, sent, passedOver := c.options.Clock.Now(), false, false, false
	defer func() {
		if placed {
			c.evictions.Release(request.Machine)
		}
	}()

	for _, action := range []Action{Delete, Evict} {
		for _, s := range c.calls.slowLast(steps, action, started) {
			if c.options.Clock.Since(started) >= sendTime || !c.drainStates.wanted(request.Machine, r) {
				c.work.Enqueue(request.Machine)
				return false, false, nil
			}
			now := c.options.Clock.Now()
			begun, may := c.calls.begin(s.Pod.Namespace, action, now)
			if !may {
				passedOver = true
				continue
			}
			if action == Evict && !placed {
				if placed = c.evictions.AcquireBeyond(request.Machine, c.calls.hanging(now)); !placed {
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
	return false, passedOver && !sent, nil
}

// patience is how long one eviction or deletion may take: long, for what cuts one off may keep it from ever being
// done, but not all of a drain that has only seconds.
func (r Request) patience(now time.Time) time.Duration {
	if r.Deadline.IsZero() {
		return callTimeout
	}
	return min(callTimeout, max(r.Deadline.Sub(now)/4, slowCall))
}

// sendOne evicts or deletes one pod, for which calls has begun, and remembers what came of it. It returns an error
// only if the API server did not answer.
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
	result, try := judge(s.Action, err, r.drainPass.tries[s.UID], now)
	c.metrics.count(result)
	logger := log.FromContext(ctx).V(1)
	logger.Info("Sent", "verb", verb, "pod", s.Pod.String(), "result", result, "error", try.Why)
	if try.Failures == 0 {
		delete(r.drainPass.tries, s.UID)
		r.drainPass.returning.leaves(pod, now)
		return nil
	}
	if s.Action == Evict && (result == blocked || result == failed) && answered(err) {
		all, budgetsErr := budgets.in(ctx, s.Pod.Namespace)
		if budgetsErr != nil {
			// The rejection stands, only its explanation is poorer.
			logger.Info("Cannot read PodDisruptionBudgets", "error", budgetsErr.Error())
		}
		explain(&try, result, assess(pod, all))
	}
	r.drainPass.tries[s.UID] = try
	if !answered(err) {
		return fmt.Errorf("%s pod %s: %w", verb, s.Pod, err)
	}
	return nil
}

// explain adds the PodDisruptionBudgets of a pod to what came of its eviction. A failure that is not a budget's
// rejection has to do with budgets only if there are several of them.
func explain(try *Try, result result, v assessment) {
	if result != blocked && len(v.budgets) < 2 {
		return
	}
	try.Refused, try.Budgets = true, v.budgets
	if v.never != "" {
		try.Never, try.Why = true, v.never
	}
}

// budgetsOf returns the one budget that each refused pod waits for.
func budgetsOf(steps []Step, tries map[types.UID]Try) map[types.UID]types.NamespacedName {
	var budgets map[types.UID]types.NamespacedName
	for _, s := range steps {
		if try := tries[s.UID]; s.pending() && len(try.Budgets) == 1 {
			if budgets == nil {
				budgets = map[types.UID]types.NamespacedName{}
			}
			budgets[s.UID] = types.NamespacedName{Namespace: s.Pod.Namespace, Name: try.Budgets[0]}
		}
	}
	return budgets
}
