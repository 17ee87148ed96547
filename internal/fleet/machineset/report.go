package machineset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wording"
)

// statusInterval is the minimum time between status writes that change only numbers. Rollouts do not wait for these
// writes, because deployments do not read the numbers but count the Machine objects.
const statusInterval = 2 * time.Second

// report updates the set's status if it has changed. If only numbers have changed, report may postpone the update by
// statusInterval.
func (p *pass) report(ctx context.Context, plan Plan) error {
	set := p.state.Set
	status := Status(p.state, plan, p.failure)
	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	if wait := p.known.statusWritten.Add(statusInterval).Sub(p.Clock.Now()); wait > 0 &&
		!isUrgent(set.Status.Conditions, status.Conditions) {
		p.requeueIn(wait)
		return nil
	}
	changed := set.DeepCopy()
	changed.Status = status
	err := p.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		p.requeueIn(queueing.ConflictDelay)
		return nil
	case err != nil:
		return fmt.Errorf("patch the set's status: %w", err)
	}
	p.ownWrites.Record(changed)
	p.known.statusWritten = p.Clock.Now()
	p.recordTransitions(set.Status.Conditions, status.Conditions)
	return nil
}

func (p *pass) reportAfter(ctx context.Context) error {
	if err := p.observe(ctx); err != nil {
		return err
	}
	if err := p.count(ctx); err != nil {
		return err
	}
	plan := Decide(p.state)
	p.requeueIn(plan.RequeueAfter)
	return p.report(ctx, plan)
}

// isUrgent reports whether the status or reason of a condition changed so that the write must not wait. A new reason
// is urgent only if the condition is True. When the set reaches its replicas, the write may wait, because a rollout
// soon changes the replicas again.
func isUrgent(before, after []metav1.Condition) bool {
	for _, c := range after {
		was := meta.FindStatusCondition(before, c.Type)
		if was != nil && c.Status == metav1.ConditionFalse &&
			(c.Type == v1beta1.ConditionScalingUp || c.Type == v1beta1.ConditionScalingDown) {
			continue
		}
		if was == nil || was.Status != c.Status || c.Status == metav1.ConditionTrue && was.Reason != c.Reason {
			return true
		}
	}
	return false
}

func (p *pass) recordTransitions(before, after []metav1.Condition) {
	for _, c := range after {
		was := meta.FindStatusCondition(before, c.Type)
		began := c.Status == metav1.ConditionTrue && (was == nil || was.Status != c.Status || was.Reason != c.Reason)
		ended := c.Status == metav1.ConditionFalse && was != nil && was.Status == metav1.ConditionTrue
		switch c.Type {
		case v1beta1.ConditionReplicaFailure, v1beta1.ConditionAdoptionSkipped:
			if began {
				p.event(corev1.EventTypeWarning, c.Reason, "Reconcile", c.Message)
			}
		case v1beta1.ConditionFrozen:
			if began {
				p.event(corev1.EventTypeWarning, c.Reason, "Freeze", c.Message)
			} else if ended {
				p.event(corev1.EventTypeNormal, c.Reason, "Thaw", "The freeze has ended: the set creates machines again.")
			}
		}
	}
}

func (p *pass) recordActions() {
	for _, action := range []struct {
		machines             machineTally
		reason, action, verb string
	}{
		{p.done.released, reasonMachinesReleased, "Release", "Released"},
		{p.done.adopted, reasonMachinesAdopted, "Adopt", "Adopted"},
		{p.done.handedOver, reasonMachinesHandedOver, "HandOver", "Handed over"},
		{p.done.created, reasonMachinesCreated, "Create", "Created"},
	} {
		switch n := action.machines.n; {
		case n == 1:
			p.event(corev1.EventTypeNormal, action.reason, action.action, fmt.Sprintf("%s machine %s.", action.verb,
				action.machines))
		case n > 1:
			p.event(corev1.EventTypeNormal, action.reason, action.action,
				fmt.Sprintf("%s %s: %s.", action.verb, wording.Count(n, "machine"), action.machines))
		}
	}
	for _, message := range p.done.deleted.messages("Deleted") {
		p.event(corev1.EventTypeNormal, reasonMachinesDeleted, "Delete", message)
	}
	for _, message := range p.done.remediated.messages("Replacing") {
		p.event(corev1.EventTypeNormal, reasonMachinesRemediated, "Replace", message)
	}
}

// event records an event on the set without its resource version, so that a repeated event increments the count of the
// same Event.
func (p *pass) event(kind, reason, action, message string) {
	if p.Recorder != nil {
		set := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.state.Set.Namespace, Name: p.state.Set.Name,
			UID: p.state.Set.UID}}
		p.Recorder.Eventf(set, nil, kind, reason, action, "%s", message)
	}
}

// Reasons of events on a MachineSet, in addition to the reasons of its conditions. HandOverFailed is also a reason of
// ReplicaFailure.
const (
	// reasonMachinesCreated surfaces when a pass has created machines. One event covers all these machines.
	reasonMachinesCreated = "MachinesCreated"

	// reasonMachinesDeleted surfaces when a pass has deleted surplus machines. One event covers all machines with the
	// same reason. The reason is in the message: ScaleDown, Rollout, Replace, Expiry or Rebalance.
	reasonMachinesDeleted = "MachinesDeleted"

	// reasonMachinesRemediated surfaces when a pass has deleted failed, unhealthy or interrupted machines to replace
	// them. One event covers all machines with the same reason. The reason is in the message: the failure reason of the
	// machines, or the reason of their condition RemediationRequested or InterruptionNotice.
	reasonMachinesRemediated = "MachinesRemediated"

	// reasonMachinesAdopted surfaces when a pass has adopted machines. One event covers all these machines.
	reasonMachinesAdopted = "MachinesAdopted"

	// reasonMachinesReleased surfaces when a pass has released machines that the set no longer selects. One event
	// covers all these machines.
	reasonMachinesReleased = "MachinesReleased"

	// reasonMachinesHandedOver surfaces when a pass has handed over machines to another set. One event covers all these
	// machines.
	reasonMachinesHandedOver = "MachinesHandedOver"

	// reasonHandOverFailed surfaces on ReplicaFailure when a machine could not be handed over to another set.
	reasonHandOverFailed = "HandOverFailed"
)
