package machinedeployment

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
)

const statusInterval = time.Second

// versionsInterval is the minimum time between status writes that change only kubelet versions. Numbers of machines
// usually change soon afterwards, so that one write is enough for the versions and the numbers.
const versionsInterval = 30 * time.Second

// Reasons of events on a MachineDeployment, in addition to the reasons of its conditions.
const (
	// reasonRevisionCreated surfaces when the MachineSet of a new revision has been created.
	reasonRevisionCreated = "RevisionCreated"

	// reasonRevisionFound surfaces when the MachineSet of an earlier revision is used again.
	reasonRevisionFound = "RevisionFound"
)

func (p *pass) report(ctx context.Context, v *view, selector string) error {
	status, requeueAfter := statusOf(p.deployment, v, selector, p.now)
	p.requeueIn(requeueAfter)
	return p.writeStatus(ctx, status)
}

// writeStatus writes a changed status. Urgent changes are written immediately, other changes at most every
// statusInterval or versionsInterval.
func (p *pass) writeStatus(ctx context.Context, status *v1beta1.MachineDeploymentStatus) error {
	d := p.deployment
	stuck := ""
	if progress := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionProgressing); progress != nil &&
		progress.Status == metav1.ConditionFalse {
		stuck = progress.Reason
	}
	p.Metrics.stuckFor(client.ObjectKeyFromObject(d).String(), p.known.stuckReason, stuck)
	p.known.stuckReason = stuck
	if equality.Semantic.DeepEqual(&d.Status, status) {
		return nil
	}
	interval := statusInterval
	if onlyVersions(&d.Status, status) {
		interval = versionsInterval
	}
	if wait := interval - p.now.Sub(p.known.reportedAt); wait > 0 && !urgent(&d.Status, status) {
		p.requeueIn(wait)
		return nil
	}
	changed := d.DeepCopy()
	changed.Status = *status
	err := p.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return nil // The deployment was deleted meanwhile.
	case err != nil:
		return fmt.Errorf("patch the status of the deployment: %w", err)
	}
	p.ownWrites.Record(changed)
	p.known.reportedAt = p.now
	p.traceRollout(&d.Status, status)
	for _, e := range transitions(&d.Status, status) {
		p.Recorder.Eventf(d, nil, e.kind, e.reason, "Roll", "%s", e.note)
	}
	return nil
}

func urgent(before, after *v1beta1.MachineDeploymentStatus) bool {
	if before.ObservedGeneration != after.ObservedGeneration || before.CurrentRevision != after.CurrentRevision {
		return true
	}
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionStalled, v1beta1.ConditionAvailable,
		v1beta1.ConditionProgressing, v1beta1.ConditionRollingOut, v1beta1.ConditionPaused, v1beta1.ConditionFrozen,
		v1beta1.ConditionReplicaFailure, v1beta1.ConditionBalanced} {
		if statusOfCondition(before, kind) != statusOfCondition(after, kind) {
			return true
		}
	}
	return false
}

func onlyVersions(before, after *v1beta1.MachineDeploymentStatus) bool {
	same := *before
	same.Versions = after.Versions
	return equality.Semantic.DeepEqual(&same, after)
}

func statusOfCondition(status *v1beta1.MachineDeploymentStatus, kind string) metav1.ConditionStatus {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return c.Status
	}
	return ""
}

type transition struct{ kind, reason, note string }

// transitions returns the events to record after a change of the status. It does not return the event about a new
// revision.
func transitions(before, after *v1beta1.MachineDeploymentStatus) []transition {
	var events []transition
	changed := func(kind string) *metav1.Condition {
		old, now := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if now == nil || old != nil && old.Status == now.Status && old.Reason == now.Reason {
			return nil
		}
		return now
	}
	if c := changed(v1beta1.ConditionProgressing); c != nil {
		switch {
		case c.Reason == v1beta1.ReasonNewMachineSetAvailable:
			events = append(events, transition{corev1.EventTypeNormal, v1beta1.ReasonRolloutComplete, c.Message})
		case c.Reason == v1beta1.ReasonPartitionReached, c.Reason == v1beta1.ReasonWaitingForPromotion:
			events = append(events, transition{corev1.EventTypeNormal, c.Reason, c.Message})
		case c.Status == metav1.ConditionFalse, isVersionWait(c.Reason):
			events = append(events, transition{corev1.EventTypeWarning, c.Reason, c.Message})
		}
	}
	if c := changed(v1beta1.ConditionBalanced); c != nil {
		kind := corev1.EventTypeWarning
		if c.Status == metav1.ConditionTrue {
			kind = corev1.EventTypeNormal
		}
		events = append(events, transition{kind, c.Reason, c.Message})
	}
	if c := changed(v1beta1.ConditionFrozen); c != nil && c.Status == metav1.ConditionTrue {
		events = append(events, transition{corev1.EventTypeWarning, c.Reason, c.Message})
	}
	return events
}
