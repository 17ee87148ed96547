package machine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Drainer drains Nodes with workers of its own. When the state of a drain has changed, it enqueues the Machine.
type Drainer interface {
	Drain(drain.Request) drain.Outcome
	VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome
	Forget(machine types.NamespacedName)
}

// drainBackstop is how long a draining Machine waits for an event before it is reconciled again.
const drainBackstop = time.Minute

// drainNode drains the Node before a deletion, an update or an interruption. Unless the Machine is deleted, the Node is
// uncordoned afterwards.
func (r *removal) drainNode(ctx context.Context) (progress, error) {
	if r.node == nil {
		r.suspendDrain() // The Node no longer exists, or the deletion does not wait for it.
		return next, nil
	}
	_, skip := r.machine.Annotations[v1beta1.AnnotationSkipDrain]
	if !forced(r.machine) {
		if err := r.redrainIfInService(ctx); err != nil {
			return r.targetUnreachable(ctx, err)
		}
		cordoned, err := drain.Cordon(ctx, r.Target.Nodes, r.node)
		switch {
		case apierrors.IsNotFound(err):
			r.node = nil // The Node was deleted after it was read.
			return next, nil
		case apierrors.IsConflict(err):
			return onError, err // The Node was replaced, or other clients keep changing it.
		case err != nil:
			return r.targetUnreachable(ctx, err)
		}
		r.node = cordoned
	}
	r.refreshNow()
	epoch := r.excludeOutages()
	reachable := nodeReachable(r.node)
	if !r.isTrue(v1beta1.ConditionDrained) {
		start := drainStart(r.machine, r.now)
		outcome := r.Drainer.Drain(drain.Request{
			Subject: r.drainSubject(epoch), Start: start, Deadline: drainDeadline(r.machine, start),
			InterruptionAnnounced: r.announcedByNodeOnly(), NodeReachable: reachable,
			NotReadySince: notReadySince(r.node), SkipDrain: skip,
			VolumeDetachTimeout: r.machine.Spec.Timeouts.VolumeDetachOrDefault(),
		})
		if outcome.Reason == "" {
			r.awaitFirstCheck()
			return onDrain | r.after(drainBackstop), nil
		}
		outcome = r.unlessReported(v1beta1.ConditionDrained, outcome)
		transition := r.setCondition(v1beta1.ConditionDrained, outcome.IsDone, outcome.Reason, outcome.Message)
		if !outcome.IsDone {
			if transition && outcome.PermissionDenied {
				r.warn(outcome.Reason, "Drain", outcome.Message)
			}
			r.reportDeleting(v1beta1.ReasonDraining, outcome.Message)
			if r.stopping == nil { // The last operation may be an update whose result is unknown.
				r.operation(v1beta1.OperationDrain, v1beta1.OperationProcessing, outcome.Message, "")
			}
			return onDrain | r.after(drainBackstop), nil
		}
	}
	if r.isTrue(v1beta1.ConditionVolumesDetached) || outOfService(r.machine) {
		return next, nil
	}
	if !reachable {
		// If a node is unreachable, no controller detaches its volumes, because the instance may still be running.
		r.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Did not wait until the volumes are detached, because the node is unreachable.")
		return next, nil
	}
	if since := notReadySince(r.node); !since.IsZero() && r.now.Sub(since) >= drain.NotReadyPatience {
		// A kubelet that cannot end its pods cannot unmount their volumes either.
		r.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Did not wait until the volumes are detached, because the node is not Ready.")
		return next, nil
	}
	drained := meta.FindStatusCondition(r.machine.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime.Time
	outcome := r.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Subject: r.drainSubject(epoch), ReportedVolumes: r.node.Status.VolumesAttached, DrainTime: drained,
		Timeout: r.machine.Spec.Timeouts.VolumeDetachOrDefault(),
	})
	outcome = r.unlessReported(v1beta1.ConditionVolumesDetached, outcome)
	r.setCondition(v1beta1.ConditionVolumesDetached, outcome.IsDone, outcome.Reason, outcome.Message)
	if !outcome.IsDone {
		r.reportDeleting(v1beta1.ReasonWaitingForVolumeDetach, outcome.Message)
		return onDrain | r.after(drainBackstop), nil
	}
	return next, nil
}

// awaitFirstCheck reports the drain while no worker of this process has checked the Node yet. If the status already
// reports the drain, the report stays. If not, a deletion reports nothing, so that the drain of an empty node causes no
// write. An update must report the drain immediately, because the same pass would otherwise uncordon the node.
func (r *removal) awaitFirstCheck() {
	message := fmt.Sprintf("Checking which pods run on node %s.", r.node.Name)
	if c := meta.FindStatusCondition(r.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil {
		message = c.Message
	} else if !r.machine.DeletionTimestamp.IsZero() {
		return
	}
	r.reportDeleting(v1beta1.ReasonDraining, message)
}

// drainSubject returns the subject of the drain. The argument epoch is the number of the last outage whose duration
// does not count as drain time.
func (p *pass) drainSubject(epoch uint64) drain.Subject {
	return drain.Subject{Machine: client.ObjectKeyFromObject(p.machine), UID: p.machine.UID, Node: p.node.Name,
		NodeUID: p.node.UID, Epoch: epoch, Policy: p.machine.Spec.Drain.DeepCopy(), Force: forced(p.machine)}
}

// redrainIfInService drains the Node again if an administrator has uncordoned it after the drain, because new pods may
// run on it. After a restart of the process, the cached Node may be older than the patch that cordoned it. Therefore,
// the Node is read from the API server.
func (p *pass) redrainIfInService(ctx context.Context) error {
	if p.node.Spec.Unschedulable || !p.isTrue(v1beta1.ConditionDrained) {
		return nil
	}
	live := &corev1.Node{}
	err := p.Target.LiveClient.Get(ctx, client.ObjectKeyFromObject(p.node), live)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if live.UID == p.node.UID && !live.Spec.Unschedulable {
		p.endDrain()
	}
	return nil
}

// drainReport is the last report about an unfinished drain that this process has written to the status.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported prevents two processes from overwriting each other's messages repeatedly. Repeated overwriting could
// happen if both processes assume that they are the leader and see different states of the PodDisruptionBudgets. If
// another process has just replaced the message of this process, unlessReported keeps the new message. In all other
// cases, it returns the outcome unchanged.
func (p *pass) unlessReported(kind string, o drain.Outcome) drain.Outcome {
	if o.IsDone {
		return o
	}
	last := p.states.get(p.machine).teardown.drainReport
	repeats := last == drainReport{kind, o.Reason, o.Message, last.at} && p.now.Sub(last.at) < drainBackstop
	if written := meta.FindStatusCondition(p.machine.Status.Conditions, kind); repeats && written != nil &&
		written.Status == metav1.ConditionFalse {
		o.Reason, o.Message = written.Reason, written.Message
		return o
	}
	p.drainReport = drainReport{kind, o.Reason, o.Message, p.now}
	return o
}

// refreshNow sets the current time, because the previous steps of the pass may have taken a long time.
func (p *pass) refreshNow() { p.now = p.Clock.Now() }

// drainStart returns the time at which the condition Drained became False because of the drain. Before the condition is
// written, drainStart returns the current time.
func drainStart(m *v1beta1.Machine, now time.Time) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return now.Truncate(time.Second) // The condition has whole secondp.
}

// notReadySince returns the time since which the kubelet has reported that the Node is not Ready. It returns the zero
// time if the kubelet does not report this.
func notReadySince(node *corev1.Node) time.Time {
	if c := readyCondition(node); c != nil && c.Status == corev1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// nodeReachable reports whether the Node's kubelet still updates the status of the Node.
func nodeReachable(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status != corev1.ConditionUnknown
}

// endDrain removes the conditions of a drain and stops its workers. The node stays cordoned until it is Ready again.
func (p *pass) endDrain() {
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionDrained)
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionDrainExtended)
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	p.suspendDrain()
}

// suspendDrain stops the workers of the drain, because the deletion or update cannot continue now. The node stays
// cordoned, and the same drain continues later.
func (p *pass) suspendDrain() {
	if p.Drainer != nil {
		p.Drainer.Forget(client.ObjectKeyFromObject(p.machine))
	}
}

// uncordon uncordons the node after an update. The node must be Ready again. If another update needs the drained node,
// the node stays cordoned.
func (p *pass) uncordon(ctx context.Context) error {
	if machinestate.IsPaused(p.machine) || p.unsupportedSchema(p.machine) != "" || isUpdating(p.machine) ||
		machinestate.IsInterrupted(p.machine) || machinestate.IsInterrupted(p.original) ||
		p.Power != nil && (machinestate.IsStopped(p.machine) || machinestate.IsRebooting(p.machine)) ||
		p.machine.Status.Power != nil ||
		meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionDrained) != nil {
		return nil
	}
	if !drain.NeedsUncordon(p.node) {
		return nil
	}
	// The cached Machine may be outdated. The current Machine may require that the node stays cordoned.
	if err := p.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// A former leader may have requested an update, and the cached node may not contain this request yet. Therefore, the
	// request is removed together with the cordon. Otherwise, the agent would start the update while pods run on the node.
	node, err := drain.Uncordon(ctx, p.Target.Nodes, p.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	p.node = node
	return nil
}

// drainDeadline returns the deadline of a drain that began at start. An announced interruption moves the deadline to
// interruptionMargin before the interruption, even if this leaves little time for the drain.
func drainDeadline(m *v1beta1.Machine, start time.Time) time.Time {
	end := start.Add(m.Spec.Timeouts.DrainOrDefault())
	if at := m.Status.InterruptionTime; machinestate.IsInterrupted(m) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
