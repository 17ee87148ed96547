package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/wording"
)

const statusInterval = time.Second

// reportStopped writes to every check that no machine is evaluated. The numbers of the last pass stay.
func (p *pass) reportStopped(ctx context.Context, why ConditionReason) error {
	var errs []error
	for i := range p.checks {
		status := p.checks[i].Status.DeepCopy()
		status.Conditions = conditionlimit.HealthCheck.Apply(status.Conditions)
		status.RemediationsAllowed = 0
		p.setCondition(&p.checks[i], status, why)
		errs = append(errs, p.writeStatus(ctx, &p.checks[i], status))
	}
	return p.retryConflicts(errors.Join(errs...))
}

func (p *pass) report(ctx context.Context, g group, j Decision) error {
	if g.check == nil {
		p.reportBuiltIn(g, j)
		return nil
	}
	status := g.check.Status.DeepCopy()
	status.Conditions = conditionlimit.HealthCheck.Apply(status.Conditions)
	status.ObservedGeneration = g.check.Generation
	status.ExpectedMachines, status.CurrentHealthy, status.RemediationsAllowed = int32(j.ExpectedCount), int32(j.HealthyCount), int32(j.AllowedUnhealthy)
	status.Targets = j.Targets[:min(len(j.Targets), maxTargets)]
	why := j.Restriction
	if g.unusable.Reason != "" {
		why = g.unusable
	}
	p.setCondition(g.check, status, why)
	p.setTemplateCondition(g, status)
	return p.writeStatus(ctx, g.check, status)
}

// reportBuiltIn reports a new restriction of the built-in policy on the first machine that it affects, because the
// policy has no object.
func (p *pass) reportBuiltIn(g group, j Decision) {
	before := p.state.restrictions[g.namespace]
	if j.Restriction.Reason == "" {
		delete(p.state.restrictions, g.namespace)
		return
	}
	p.state.restrictions[g.namespace] = j.Restriction.Reason
	if before == j.Restriction.Reason {
		return
	}
	about := slices.IndexFunc(g.subjects, func(s Subject) bool {
		return len(j.Targets) > 0 && s.Machine.Name == j.Targets[0]
	})
	if about < 0 {
		about = slices.IndexFunc(g.subjects, func(s Subject) bool {
			return Evaluate(g.policy, s.Machine, s.Node, p.now, p.clocks.ForDomains(everywhere)).InTrouble
		})
	}
	if about >= 0 {
		p.event(g.subjects[about].Machine, corev1.EventTypeWarning, j.Restriction.Reason, j.Restriction.Message)
	}
}

func (p *pass) setCondition(c *v1beta1.MachineHealthCheck, status *v1beta1.MachineHealthCheckStatus,
	why ConditionReason) {
	condition := metav1.Condition{
		Type: v1beta1.ConditionRemediationAllowed, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonRemediationAllowed,
		ObservedGeneration: c.Generation, LastTransitionTime: metav1.NewTime(p.now),
	}
	if why.Reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, why.Reason, wording.Truncate(why.Message, maxMessage)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

func (p *pass) writeStatus(ctx context.Context, c *v1beta1.MachineHealthCheck,
	status *v1beta1.MachineHealthCheckStatus) error {
	if equality.Semantic.DeepEqual(c.Status, *status) {
		return nil
	}
	was, is := allowed(c.Status.Conditions), allowed(status.Conditions)
	turned := was == nil || was.Status != is.Status || was.Reason != is.Reason
	if wait := p.state.statusWritten[c.UID].Add(statusInterval).Sub(p.now); wait > 0 && !turned {
		p.requeueIn(wait)
		return nil
	}
	changed := c.DeepCopy()
	changed.Status = *status
	err := p.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch the status of health check %s: %w", client.ObjectKeyFromObject(c), err)
	}
	p.state.statusWritten[c.UID] = p.now
	switch {
	case !turned:
	case is.Status == metav1.ConditionFalse:
		p.event(changed, corev1.EventTypeWarning, is.Reason, is.Message)
	case was != nil:
		p.event(changed, corev1.EventTypeNormal, is.Reason, "Remediation of unhealthy machines is allowed again.")
	}
	return nil
}

func allowed(conditions []metav1.Condition) *metav1.Condition {
	return meta.FindStatusCondition(conditions, v1beta1.ConditionRemediationAllowed)
}

// Reasons of events that report the remediation of a Machine. The events are on the Machine. The reasons of the
// condition RemediationAllowed are also used in such events.
const (
	// reasonRequested surfaces when a policy found the machine unhealthy. The message names the policy.
	reasonRequested = v1beta1.ConditionRemediationRequested

	// reasonWithdrawn surfaces when the replacement of the machine is no longer requested.
	reasonWithdrawn = "RemediationWithdrawn"

	// reasonCreated surfaces when the manager has created a remediation for another operator.
	reasonCreated = "RemediationCreated"

	// reasonTimedOut surfaces when a remediation of another operator has exceeded its timeout.
	reasonTimedOut = "RemediationTimedOut"

	// reasonDeleted surfaces when the manager has deleted a remediation of another operator. The message contains the
	// reason.
	reasonDeleted = "RemediationDeleted"
)

func (p *pass) event(about client.Object, kind, reason, message string) {
	if p.Recorder != nil {
		p.Recorder.Eventf(about, nil, kind, reason, "Remediate", "%s", message[:min(len(message), 512)])
	}
}
