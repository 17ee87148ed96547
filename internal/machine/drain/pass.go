package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// sendTime is how long a pass sends evictions before it releases its worker to other drains.
const sendTime = 2 * time.Second

// passDrain checks a node, sends what is due, and returns the time of the next pass. It returns 0 if the drain is done.
func (c *Controller) passDrain(ctx context.Context, r *record, request Request) (next time.Duration, err error) {
	decision, err := c.planDrain(ctx, r, request)
	switch {
	case isDenial(err):
		return c.reportDenial(r, request, err), nil
	case err != nil:
		return 0, err
	case request.Epoch != c.options.Epoch():
		// The check may have waited until the outage was over.
		c.triggers.Enqueue(request.Machine)
		return 0, nil
	}
	r.drainPass.denials = 0
	if decision.Done {
		c.finish(r, v1beta1.ReasonDrained, drainedMessage(decision))
		return 0, nil
	}
	next = decision.Next
	if slices.ContainsFunc(decision.Steps, Step.due) {
		node, err := c.node(ctx, request.Subject)
		if err != nil {
			return 0, err
		}
		if node == nil {
			c.finish(r, v1beta1.ReasonSkipped, "The Node no longer exists.")
			return 0, nil
		}
		if _, announced := c.options.Signals.Of(node); request.Announced && !announced {
			c.reportProgress(r, request, decision)
			c.triggers.Enqueue(request.Machine) // The Machine reconciler will read the Node again.
			return maxRecheck, nil
		}
		limited, err := c.send(ctx, r, request, decision.Steps)
		if err != nil {
			return 0, err
		}
		if limited {
			next = max(next, maxRecheck)
		}
	}
	if wait := c.reportProgress(r, request, decision); wait > 0 {
		next = min(next, wait)
	}
	return next, nil
}

// planDrain reads the inputs of the plan and calls Plan.
func (c *Controller) planDrain(ctx context.Context, r *record, request Request) (Decision, error) {
	in, err := c.observe(ctx, r, request.Node)
	if err != nil {
		return Decision{}, err
	}
	pass := &r.drainPass
	pass.attempts = c.currentAttempts(r, in.Pods)
	in.Start, in.Deadline = request.Start, request.Deadline
	in.NodeReachable, in.NotReadySince = request.NodeReachable, request.NotReadySince
	in.Attempts, in.RecheckAfter = pass.attempts, pass.recheck
	decision := Plan(in)
	pass.recheck = decision.RecheckAfter
	if l := log.FromContext(ctx).V(1); l.Enabled() {
		for _, s := range decision.Steps {
			l.Info("Plan", "pod", s.Pod.String(), "action", s.Action, "why", s.Why)
		}
	}
	return decision, nil
}

// observe reads the pods of a node, and finds out which of them their controllers would create again.
func (c *Controller) observe(ctx context.Context, r *record, node string) (Input, error) {
	var pods corev1.PodList
	if err := c.options.Target.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return Input{}, fmt.Errorf("list the pods of node %q: %w", node, err)
	}
	orphaned, err := c.daemonSets.orphaned(ctx, pods.Items)
	if err != nil {
		return Input{}, err
	}
	now, tracker := c.options.Clock.Now(), &r.drainPass.tracker
	tracker.observe(pods.Items, now)
	return Input{Pods: pods.Items, Now: now, Orphaned: orphaned, Successors: tracker.successors}, nil
}

// currentAttempts returns the results of earlier attempts for pods that still exist. A pod whose budget has changed may
// be tried again at once.
func (c *Controller) currentAttempts(r *record, pods []corev1.Pod) map[types.UID]Attempt {
	triggered := c.records.takeTriggered(r)
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
func (c *Controller) node(ctx context.Context, subject Subject) (*corev1.Node, error) {
	var node corev1.Node
	err := c.options.Target.Get(ctx, types.NamespacedName{Name: subject.Node}, &node)
	switch {
	case apierrors.IsNotFound(err), err == nil && node.UID != subject.NodeUID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get node %q: %w", subject.Node, err)
	}
	return &node, nil
}

// send sends what is due, one call after another: deletions before evictions, and pods of slow namespaces last. limited
// is true if some were not sent because too many calls are in flight in slow namespaces.
func (c *Controller) send(ctx context.Context, r *record, request Request, steps []Step) (limited bool, err error) {
	var due [4][]Step
	for _, s := range steps {
		rank := 0
		if s.Action == Evict {
			rank++
		}
		if c.slow.isSlow(s.Pod.Namespace) {
			rank += 2
		}
		if s.due() {
			due[rank] = append(due[rank], s)
		}
	}
	started := c.options.Clock.Now()
	for _, s := range slices.Concat(due[:]...) {
		if c.options.Clock.Since(started) >= sendTime || !c.records.inProgress(request.Machine, r) {
			c.work.Enqueue(request.Machine)
			return limited, nil
		}
		if !c.slow.begin(s.Pod.Namespace) {
			limited = true
			continue
		}
		if err := c.sendOne(ctx, r, request, s); err != nil {
			return limited, err
		}
	}
	return limited, nil
}

// sendOne evicts or deletes one pod and remembers the result. It returns an error only if the API server did not
// answer.
func (c *Controller) sendOne(ctx context.Context, r *record, request Request, s Step) error {
	err := c.call(ctx, s, request.patience(c.options.Clock.Now()))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now, attempts := c.options.Clock.Now(), r.drainPass.attempts
	result, try := resultOf(s.Action, err, attempts[s.UID], now)
	c.metrics.count(result)
	logger := log.FromContext(ctx).V(1)
	logger.Info("Sent", "verb", s.Action, "pod", s.Pod.String(), "result", result, "error", try.Why)
	if try.Failures == 0 {
		delete(attempts, s.UID)
		r.drainPass.tracker.recordEviction(s.pod, now)
		return nil
	}
	if s.Action == Evict && (result == blocked || result == failed) && answered(err) {
		var budgets policyv1.PodDisruptionBudgetList
		if err := c.options.BudgetReader.List(ctx, &budgets, client.InNamespace(s.Pod.Namespace)); err != nil {
			// The rejection is still valid; only its explanation lacks the budgets.
			logger.Info("Cannot list PodDisruptionBudgets", "namespace", s.Pod.Namespace, "error", err.Error())
		}
		explain(&try, result, assess(s.pod, budgets.Items))
	}
	attempts[s.UID] = try
	if !answered(err) {
		return fmt.Errorf("%s pod %s: %w", s.Action, s.Pod, err)
	}
	return nil
}
