package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// sendTime is the time after which a pass sends no more evictions and releases its worker to other drains.
const sendTime = 2 * time.Second

// passDrain checks a node, sends the evictions and deletions that are due, and returns the time until the next pass.
// The time is 0 if the drain is done.
func (c *Controller) passDrain(ctx context.Context, r *record, request Request) (next time.Duration, err error) {
	decision, err := c.planDrain(ctx, r, request)
	switch {
	case isDenial(err):
		return c.reportDenial(r, request, err), nil
	case err != nil:
		return 0, err
	case request.Epoch != c.options.Epoch():
		// An outage that begins or ends during planDrain changes the epoch.
		c.triggers.Enqueue(request.Machine)
		return 0, nil
	}
	r.drainPass.denials = 0
	if decision.IsDone {
		c.finish(r, v1beta1.ReasonDrained, drainedMessage(decision))
		return 0, nil
	}
	next = decision.NextCheck
	if slices.ContainsFunc(decision.Steps, Step.due) {
		node, err := c.node(ctx, request.Subject)
		if err != nil {
			return 0, err
		}
		if node == nil {
			c.finish(r, v1beta1.ReasonSkipped, "The Node no longer exists.")
			return 0, nil
		}
		if _, announced := c.options.Signals.Find(node); request.InterruptionAnnounced && !announced {
			c.reportProgress(r, request, decision)
			c.triggers.Enqueue(request.Machine) // The Machine reconciler will read the Node again.
			return maxRecheck, nil
		}
		c.send(ctx, r, request, decision.Steps)
	}
	if wait := c.reportProgress(r, request, decision); wait > 0 {
		next = min(next, wait)
	}
	return next, nil
}

func (c *Controller) planDrain(ctx context.Context, r *record, request Request) (Decision, error) {
	in, err := c.observe(ctx, r, request.Subject)
	if err != nil {
		return Decision{}, err
	}
	switch err := c.observeVolumes(ctx, r, request, &in); {
	case isDenial(err):
		in.VolumesDenied = shorten(err.Error()) // The drain does not need the volumes after its deadline.
	case err != nil:
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
			l.Info("Plan", "pod", s.Pod.String(), "action", s.Action, "why", s.Explanation)
		}
	}
	return decision, nil
}

// observe reads the pods of a node and what the rules need. It also determines which pods would be created again if
// they were evicted.
func (c *Controller) observe(ctx context.Context, r *record, subject Subject) (Input, error) {
	var pods corev1.PodList
	if err := c.options.Target.List(ctx, &pods, client.MatchingFields{"spec.nodeName": subject.Node}); err != nil {
		return Input{}, fmt.Errorf("list the pods of node %q: %w", subject.Node, err)
	}
	orphaned, err := c.daemonSets.orphanedUIDs(ctx, pods.Items)
	if err != nil {
		return Input{}, err
	}
	var namespaces map[string]labels.Set
	if selectsNamespaces(subject.Policy) {
		if namespaces, err = c.namespaces.labelsOf(ctx, pods.Items); err != nil {
			return Input{}, err
		}
	}
	now, tracker := c.options.Clock.Now(), &r.drainPass.tracker
	tracker.observe(pods.Items, now)
	return Input{Pods: pods.Items, Now: now, OrphanedDaemonSets: orphaned, Successors: tracker.successors,
		Policy: subject.Policy, Namespaces: namespaces}, nil
}

// currentAttempts returns the results of earlier attempts for pods that still exist. If the budget of a pod has
// changed, the next eviction of the pod need not wait for Attempt.NotBefore.
func (c *Controller) currentAttempts(r *record, pods []corev1.Pod) map[types.UID]Attempt {
	triggered := c.records.takeTriggered(r)
	attempts := make(map[types.UID]Attempt, len(r.drainPass.attempts))
	for i := range pods {
		try, tried := r.drainPass.attempts[pods[i].UID]
		if !tried {
			continue
		}
		if triggered[pods[i].UID] && try.FirstDeletion.IsZero() {
			try.NotBefore = time.Time{}
		}
		attempts[pods[i].UID] = try
	}
	return attempts
}

// node returns the current Node, or nil if it no longer exists. If another Node has taken the name, node also returns
// nil, because the pods of that Node must not be evicted.
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

// send executes the evictions and deletions that are due, one after another. Deletions come before evictions, and calls
// that may take long come last. If the API server does not answer, send stops. The next pass shows whether the API
// server is down or whether only this call hangs.
func (c *Controller) send(ctx context.Context, r *record, request Request, steps []Step) {
	rank := func(s Step) (rank int) {
		if s.Action == ActionEvict {
			rank++
		}
		if r.drainPass.mayTakeLong(s) {
			rank += 2
		}
		return rank
	}
	due := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return !s.due() })
	slices.SortStableFunc(due, func(a, b Step) int { return cmp.Compare(rank(a), rank(b)) })
	started := c.options.Clock.Now()
	for _, s := range due {
		if c.options.Clock.Since(started) >= sendTime || !c.records.inProgress(request.Machine, r) ||
			!c.sendOne(ctx, r, request, s) {
			c.work.Enqueue(request.Machine)
			return
		}
	}
}

// mayTakeLong reports whether an earlier call for the same pod and the same action got no answer. For the first
// deletion of a pod, the result is false, so this deletion is never postponed. The duration deletePatience begins with
// the first deletion.
func (p *drainPass) mayTakeLong(s Step) bool { return p.attempts[s.UID].UnansweredAction == s.Action }

// sendOne evicts or deletes one pod and stores the result. sendOne postpones a call that may take long if too many
// others are in progress. sendOne returns false if the API server did not answer.
func (c *Controller) sendOne(ctx context.Context, r *record, request Request, s Step) bool {
	now, attempts, timeout := c.options.Clock.Now(), r.drainPass.attempts, quickTimeout
	if r.drainPass.mayTakeLong(s) {
		select {
		case c.longCalls <- struct{}{}:
			defer func() { <-c.longCalls }()
		default:
			try := attempts[s.UID]
			try.NotBefore = now.Add(maxRecheck)
			attempts[s.UID] = try
			return true
		}
		timeout = request.longTimeout(now)
	}
	err := c.call(ctx, s, timeout)
	if ctx.Err() != nil {
		return false
	}
	now = c.options.Clock.Now()
	result, try := resultOf(s.Action, err, attempts[s.UID], now)
	c.metrics.count(result)
	logger := log.FromContext(ctx).V(1)
	logger.Info("Sent", "verb", s.Action, "pod", s.Pod.String(), "result", result, "error", try.Explanation)
	if try.Failures == 0 {
		delete(attempts, s.UID)
		r.drainPass.tracker.recordEviction(s.pod, now)
		return true
	}
	if s.Action == ActionEvict && (result == blocked || result == failed) && answered(err) {
		var budgets policyv1.PodDisruptionBudgetList
		if err := c.options.BudgetReader.List(ctx, &budgets, client.InNamespace(s.Pod.Namespace)); err != nil {
			// The eviction was refused anyway. Without the list, the explanation of the refusal does not contain the
			// names of the budgets.
			logger.Info("Cannot list PodDisruptionBudgets", "namespace", s.Pod.Namespace, "error", err.Error())
		}
		explain(&try, result, assess(s.pod, budgets.Items))
		if try.IsRefused && restartsSingleReplicas(request.Policy) {
			if why := c.restartDeployment(ctx, s.pod); why != "" {
				try.Explanation += "; " + why
			}
		}
	}
	attempts[s.UID] = try
	return answered(err)
}
