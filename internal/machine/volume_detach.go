package machine

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

// detachByForce waits for the volumes of a node that did not report, now that its instance is known to be gone: until
// then nobody could say whether they were in use. A taint reports that to Kubernetes, which would else wait for a
// kubelet that is no more. Deleted without that, the Node would take the knowledge of its death with it.
func (p *pass) detachByForce(ctx context.Context) (progress, error) {
	if p.node == nil || p.forced() || p.leftBehind || p.isTrue(v1beta1.ConditionVolumesDetached) {
		return next, nil
	}
	p.catchUp()
	since := p.outOfServiceSince()
	outcome := p.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Machine: client.ObjectKeyFromObject(p.machine), UID: p.machine.UID,
		Node: p.node.Name, NodeUID: p.node.UID, Reported: p.node.Status.VolumesAttached,
		Drained: since, Timeout: p.machine.Spec.Timeouts.VolumeDetachOrDefault(), Epoch: p.epoch,
	})
	if outcome.Done {
		p.setCondition(v1beta1.ConditionVolumesDetached, true, outcome.Reason, outcome.Message)
		return next, nil
	}
	message := "The instance is gone. " + outcome.Message
	if !p.outOfService() {
		// The condition was False before for another reason. Its transition tells a later process since when this one holds.
		dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	}
	p.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonNodeOutOfService, message)
	p.deleting(v1beta1.ReasonWaitingForVolumeDetach, message)
	p.requeueIn(drainBackstop)
	if len(outcome.Attached) == 0 {
		return wait, nil // Not known yet.
	}
	node, err := drain.OutOfService(ctx, p.Target.Nodes, p.node, p.now)
	switch {
	case apierrors.IsNotFound(err):
		p.node = nil // Gone since it was read.
		return next, nil
	case apierrors.IsConflict(err):
		return wait, err
	case err != nil:
		return p.targetUnreachable(ctx, err)
	}
	p.node = node
	return wait, nil
}

// outOfService reports whether the volumes of a node are waited for whose instance is gone.
func (p *pass) outOfService() bool {
	c := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonNodeOutOfService
}

// outOfServiceSince returns when that wait began, which is now if it has not begun.
func (p *pass) outOfServiceSince() time.Time {
	if p.outOfService() {
		return meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached).LastTransitionTime.Time
	}
	return p.now.Truncate(time.Second) // As it will be read when it was written down.
}
