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

// Drainer drains Nodes with its own workers, and enqueues a Machine when there is news to report.
type Drainer interface {
	Drain(drain.Request) drain.Outcome
	VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome
	Forget(machine types.NamespacedName)
}

// drainBackstop is the time after which a draining Machine is reconciled without an event.
const drainBackstop = time.Minute

// drainStep drains the Node for a deletion, an update or an interruption. Afterwards, it puts the Node back into
// service if the Machine stays.
type drainStep struct {
	*pass
	// epoch identifies the last outage that was excluded from the time of the drain.
	epoch uint64
	// unwritten is the report of a drain that is not in the status yet.
	unwritten drainReport
}

// run cordons and drains the Node, and waits until the volumes of the Node are detached.
func (s *drainStep) run(ctx context.Context) (progress, error) {
	if s.node == nil {
		s.suspend() // The Node is gone, or the deletion does not wait for it.
		return next, nil
	}
	_, skip := s.machine.Annotations[v1beta1.AnnotationSkipDrain]
	if !s.teardown.forced() {
		if err := s.redrainIfInService(ctx); err != nil {
			return s.teardown.targetUnreachable(ctx, err)
		}
		cordoned, err := drain.Cordon(ctx, s.Target.Nodes, s.node)
		switch {
		case apierrors.IsNotFound(err):
			s.node = nil // The Node was deleted after it was read.
			return next, nil
		case apierrors.IsConflict(err):
			return onError, err // Another Node has replaced it, or other clients keep writing to it. Find the Node again.
		case err != nil:
			return s.teardown.targetUnreachable(ctx, err)
		}
		s.node = cordoned
	}
	s.refreshNow()
	s.excludeOutages()
	reachable := nodeReachable(s.node)
	if !s.isTrue(v1beta1.ConditionDrained) {
		start := s.start()
		outcome := s.Drainer.Drain(drain.Request{
			Subject: s.subject(), Start: start, Deadline: s.deadline(start), Announced: s.interruption.announcedByNodeOnly(),
			NodeReachable: reachable, NotReadySince: notReadySince(s.node), Skip: skip,
		})
		if outcome.Reason == "" {
			s.awaitFirstCheck()
			return onDrain | s.after(drainBackstop), nil
		}
		outcome = s.unlessReported(v1beta1.ConditionDrained, outcome)
		transition := s.setCondition(v1beta1.ConditionDrained, outcome.Done, outcome.Reason, outcome.Message)
		if !outcome.Done {
			if transition && outcome.Denied {
				s.warn(outcome.Reason, "Drain", outcome.Message)
			}
			s.teardown.deleting(v1beta1.ReasonDraining, outcome.Message)
			s.operation(v1beta1.OperationDrain, v1beta1.OperationProcessing, outcome.Message, "")
			return onDrain | s.after(drainBackstop), nil
		}
	}
	if s.isTrue(v1beta1.ConditionVolumesDetached) || s.teardown.outOfService() {
		return next, nil
	}
	if !reachable {
		// While the instance of an unreachable node may still run, no controller detaches its volumes.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Skipped the wait for volumes, because the node is unreachable.")
		return next, nil
	}
	if since := notReadySince(s.node); !since.IsZero() && s.now.Sub(since) >= drain.NotReadyPatience {
		// If a kubelet cannot end its pods, it cannot unmount their volumes either.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Skipped the wait for volumes, because the node is not Ready.")
		return next, nil
	}
	drained := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime.Time
	outcome := s.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Subject: s.subject(), Reported: s.node.Status.VolumesAttached, Drained: drained,
		Timeout: s.machine.Spec.Timeouts.VolumeDetachOrDefault(),
	})
	outcome = s.unlessReported(v1beta1.ConditionVolumesDetached, outcome)
	s.setCondition(v1beta1.ConditionVolumesDetached, outcome.Done, outcome.Reason, outcome.Message)
	if !outcome.Done {
		s.teardown.deleting(v1beta1.ReasonWaitingForVolumeDetach, outcome.Message)
		return onDrain | s.after(drainBackstop), nil
	}
	return next, nil
}

// awaitFirstCheck keeps the report of the drain until a worker of this process has checked the Node. If a deletion has
// not reported its drain yet, it reports nothing, so that an empty node costs no write. An update must report the drain
// at once, because the same pass would uncordon the node otherwise.
func (s *drainStep) awaitFirstCheck() {
	message := fmt.Sprintf("Checking which pods run on node %s.", s.node.Name)
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil {
		message = c.Message
	} else if !s.machine.DeletionTimestamp.IsZero() {
		return
	}
	s.teardown.deleting(v1beta1.ReasonDraining, message)
}

// subject identifies the Machine and its Node to the Drainer.
func (s *drainStep) subject() drain.Subject {
	return drain.Subject{Machine: client.ObjectKeyFromObject(s.machine), UID: s.machine.UID, Node: s.node.Name,
		NodeUID: s.node.UID, Epoch: s.epoch, Force: s.teardown.forced()}
}

// redrainIfInService starts another drain if an administrator has uncordoned the Node after it was drained, because new
// pods may run on it. After a restart, the cache may not contain the patch that cordoned the Node. The Node is
// therefore read from the API server.
func (s *drainStep) redrainIfInService(ctx context.Context) error {
	if s.node.Spec.Unschedulable || !s.isTrue(v1beta1.ConditionDrained) {
		return nil
	}
	live := &corev1.Node{}
	err := s.Target.Live.Get(ctx, client.ObjectKeyFromObject(s.node), live)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if live.UID == s.node.UID && !live.Spec.Unschedulable {
		s.end()
	}
	return nil
}

// drainReport is the last report about a waiting drain that this process has written to the status.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported returns the outcome with the message that is already in the status, in one case: this process has
// reported its own message a moment ago, and another process has replaced the message. This happens if two processes
// both assume that they are the leader. Each of them sees the budgets in another state. Without this check, they would
// overwrite each other's messages forever.
func (s *drainStep) unlessReported(kind string, o drain.Outcome) drain.Outcome {
	if o.Done {
		return o
	}
	last := s.states.get(s.machine).teardown.drainReport
	repeats := last == drainReport{kind, o.Reason, o.Message, last.at} && s.now.Sub(last.at) < drainBackstop
	if written := meta.FindStatusCondition(s.machine.Status.Conditions, kind); repeats && written != nil &&
		written.Status == metav1.ConditionFalse {
		o.Reason, o.Message = written.Reason, written.Message
		return o
	}
	s.unwritten = drainReport{kind, o.Reason, o.Message, s.now}
	return o
}

// refreshNow sets now to the current time, because the earlier steps of the pass may have taken long. Later time limits
// start at this time.
func (s *drainStep) refreshNow() { s.now = s.Clock.Now() }

// start returns when the drain began: when Drained became False, which is written as soon as a worker has found that
// the drain has to wait. Until then, the drain begins now, also after a restart or an outage.
func (s *drainStep) start() time.Time {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return s.now.Truncate(time.Second) // The condition has whole seconds.
}

// notReadySince returns the time at which the kubelet began to report that the Node is not Ready. It is zero if the
// kubelet does not report this.
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

// end removes the conditions of a drain and stops the workers of the drain. The node is uncordoned later, when it is
// Ready again.
func (s *drainStep) end() {
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrained)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrainExtended)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	s.suspend()
}

// suspend stops the workers from evicting pods for a deletion or an update that does not continue now. The node stays
// cordoned, and the same drain continues later.
func (s *drainStep) suspend() {
	if s.Drainer != nil {
		s.Drainer.Forget(client.ObjectKeyFromObject(s.machine))
	}
}

// uncordon puts the node back into service after an update, when the node is Ready again. If a pending update needs a
// drained node, the node stays cordoned.
func (s *drainStep) uncordon(ctx context.Context) error {
	if machinestate.Paused(s.machine) || s.unsupportedSchema(s.machine) != "" || isUpdating(s.machine) ||
		machinestate.Interrupted(s.machine) ||
		s.interruption.withdrawn ||
		meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained) != nil {
		return nil
	}
	if !drain.Cordoned(s.node) {
		return nil
	}
	// The cached Machine may be outdated, and there may be a new reason to keep the node cordoned.
	if err := s.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// A former leader may have written an update request that is not in the cache yet. Without this removal, the agent
	// would start the update while pods run on the node.
	node, err := drain.Uncordon(ctx, s.Target.Nodes, s.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	s.node = node
	return nil
}

// deadline returns the deadline of a drain that began at start. If an interruption is announced, the drain ends
// interruptionMargin before the interruption, even if only little time is left.
func (s *drainStep) deadline(start time.Time) time.Time {
	end := start.Add(s.machine.Spec.Timeouts.DrainOrDefault())
	if at := s.machine.Status.InterruptionTime; machinestate.Interrupted(s.machine) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
