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
func (s *teardownStep) detachByForce(ctx context.Context) (progress, error) {
	if s.node == nil || s.forced() || s.leftBehind || s.isTrue(v1beta1.ConditionVolumesDetached) {
		return next, nil
	}
	s.drain.refreshNow()
	since := s.outOfServiceSince()
	outcome := s.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Subject: s.drain.subject(), Reported: s.node.Status.VolumesAttached, Drained: since,
		Timeout: s.machine.Spec.Timeouts.VolumeDetachOrDefault(),
	})
	if outcome.Done {
		s.setCondition(v1beta1.ConditionVolumesDetached, true, outcome.Reason, outcome.Message)
		return next, nil
	}
	message := "The instance is gone. " + outcome.Message
	if !s.outOfService() {
		// Until now, the condition has been False for another reason. A new transition time records the start of this wait.
		dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	}
	s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonNodeOutOfService, message)
	s.deleting(v1beta1.ReasonWaitingForVolumeDetach, message)
	proceed := onDrain | s.after(drainBackstop)
	if len(outcome.Attached) == 0 {
		return proceed, nil // The attached volumes are not known yet.
	}
	node, err := drain.OutOfService(ctx, s.Target.Nodes, s.node, s.now)
	switch {
	case apierrors.IsNotFound(err):
		s.node = nil // The Node was deleted after it was read.
		return next, nil
	case apierrors.IsConflict(err):
		return onError, err
	case err != nil:
		return s.targetUnreachable(ctx, err)
	}
	s.node = node
	return proceed, nil
}

func (s *teardownStep) outOfService() bool {
	c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonNodeOutOfService
}

// outOfServiceSince returns the start of the wait for the volumes of such a node, or the current time if the wait has
// not begun yet.
func (s *teardownStep) outOfServiceSince() time.Time {
	if s.outOfService() {
		return meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached).LastTransitionTime.Time
	}
	return s.now.Truncate(time.Second) // The condition has whole seconds.
}
