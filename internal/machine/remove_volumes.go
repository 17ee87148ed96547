package machine

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

// detachByForce waits until the volumes of an unreachable node are detached. The instance must be gone, because its
// volumes may otherwise be in use. The out-of-service taint tells Kubernetes that the node is shut down. Without the
// taint, Kubernetes would wait for a kubelet that no longer exists. The Node must not be deleted before the volumes are
// detached, because the taint is on the Node.
func (r *removal) detachByForce(ctx context.Context) (progress, error) {
	if r.node == nil || forced(r.machine) || r.leftBehind || r.isTrue(v1beta1.ConditionVolumesDetached) {
		return next, nil
	}
	r.refreshNow()
	since, epoch := outOfServiceSince(r.machine, r.now), uint64(0)
	if r.Reachability != nil {
		_, epoch = r.Reachability.TargetOutages()
	}
	outcome := r.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Subject: r.drainSubject(epoch), ReportedVolumes: r.node.Status.VolumesAttached, DrainTime: since,
		Timeout: r.machine.Spec.Timeouts.VolumeDetachOrDefault(),
	})
	if outcome.IsDone {
		r.setCondition(v1beta1.ConditionVolumesDetached, true, outcome.Reason, outcome.Message)
		return next, nil
	}
	message := "The instance is gone. " + outcome.Message
	if !outOfService(r.machine) {
		// Until now, the condition has been False for another reason. A new transition time records the start of this wait.
		dropCondition(&r.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	}
	r.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonNodeOutOfService, message)
	r.reportDeleting(v1beta1.ReasonWaitingForVolumeDetach, message)
	proceed := onDrain | r.after(drainBackstop)
	if len(outcome.AttachedVolumes) == 0 {
		return proceed, nil // The attached volumes are not known yet.
	}
	node, err := drain.OutOfService(ctx, r.Target.Nodes, r.node, r.now)
	switch {
	case apierrors.IsNotFound(err):
		r.node = nil // The Node was deleted after it was read.
		return next, nil
	case apierrors.IsConflict(err):
		return onError, err
	case err != nil:
		return r.targetUnreachable(ctx, err)
	}
	r.node = node
	return proceed, nil
}

func outOfService(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionVolumesDetached)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonNodeOutOfService
}

// outOfServiceSince returns the time at which the deletion began to wait for the volumes of an out-of-service node. If
// the wait has not begun yet, it returns the current time.
func outOfServiceSince(m *v1beta1.Machine, now time.Time) time.Time {
	if outOfService(m) {
		return meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionVolumesDetached).LastTransitionTime.Time
	}
	return now.Truncate(time.Second) // The condition has whole seconds.
}
