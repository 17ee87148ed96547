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

// drainStep drains the Node before a deletion, an update or an interruption. Unless the Machine is deleted, the Node is
// uncordoned afterwards.
type drainStep struct {
	*pass
	// epoch is the number of the last outage whose duration does not count as drain time.
	epoch     uint64
	unwritten drainReport
}

func (s *drainStep) run(ctx context.Context) (progress, error) {
	if s.node == nil {
		s.suspend() // The Node no longer exists, or the deletion does not wait for it.
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
			return onError, err // The Node was replaced, or other clients keep changing it.
		case err != nil:
			return s.teardown.targetUnreachable(ctx, err)
		}
		s.node = cordoned
	}
	s.refreshNow()
	s.excludeOutages()
	reachable := nodeReachable(s.node)
	if !s.isTrue(v1beta1.ConditionDrained) {
		start := s.startTime()
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
		// If a node is unreachable, no controller detaches its volumes, because the instance may still be running.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Did not wait until the volumes are detached, because the node is unreachable.")
		return next, nil
	}
	if since := notReadySince(s.node); !since.IsZero() && s.now.Sub(since) >= drain.NotReadyPatience {
		// A kubelet that cannot end its pods cannot unmount their volumes either.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Did not wait until the volumes are detached, because the node is not Ready.")
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

// awaitFirstCheck reports the drain while no worker of this process has checked the Node yet. A report in the status is
// repeated. Otherwise, a deletion reports nothing, so that the drain of an empty node causes no write. An update must
// report the drain immediately, because the same pass would otherwise uncordon the node.
func (s *drainStep) awaitFirstCheck() {
	message := fmt.Sprintf("Checking which pods run on node %s.", s.node.Name)
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil {
		message = c.Message
	} else if !s.machine.DeletionTimestamp.IsZero() {
		return
	}
	s.teardown.deleting(v1beta1.ReasonDraining, message)
}

func (s *drainStep) subject() drain.Subject {
	return drain.Subject{Machine: client.ObjectKeyFromObject(s.machine), UID: s.machine.UID, Node: s.node.Name,
		NodeUID: s.node.UID, Epoch: s.epoch, Force: s.teardown.forced()}
}

// redrainIfInService drains the Node again if an administrator has uncordoned it after the drain, because new pods may
// run on it. After a restart of the process, the cached Node may be older than the patch that cordoned it. Therefore,
// the Node is read from the API server.
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

// drainReport is the last report about an unfinished drain that this process has written to the status.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported normally returns the outcome unchanged. If two processes both assume that they are the leader, each
// sees another state of the PodDisruptionBudgets. They would overwrite each other's messages again and again.
// Therefore, unlessReported keeps a message with which another process has just replaced the message of this process.
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

// refreshNow sets the current time, because the previous steps of the pass may have taken a long time.
func (s *drainStep) refreshNow() { s.now = s.Clock.Now() }

// startTime returns the time at which the drain began. This is the time at which the condition Drained became False.
// Until then, the drain begins now, also after a restart or an outage.
func (s *drainStep) startTime() time.Time {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return s.now.Truncate(time.Second) // The condition has whole seconds.
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

// end removes the conditions of a drain and stops its workers. The node stays cordoned until it is Ready again.
func (s *drainStep) end() {
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrained)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrainExtended)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	s.suspend()
}

// suspend stops the workers of the drain, because the deletion or update cannot continue now. The node stays cordoned,
// and the same drain continues later.
func (s *drainStep) suspend() {
	if s.Drainer != nil {
		s.Drainer.Forget(client.ObjectKeyFromObject(s.machine))
	}
}

// uncordon uncordons the node after an update. The node must be Ready again. If another update needs the drained node,
// the node stays cordoned.
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
	// The cached Machine may be outdated. The current Machine may require that the node stays cordoned.
	if err := s.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// A former leader may have requested an update, and the cached node may not contain this request yet. Therefore, the
	// request is removed together with the cordon. Otherwise, the agent would start the update while pods run on the node.
	node, err := drain.Uncordon(ctx, s.Target.Nodes, s.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	s.node = node
	return nil
}

// deadline returns the deadline of a drain that began at start. An announced interruption moves the deadline to
// interruptionMargin before the interruption, even if this leaves little time for the drain.
func (s *drainStep) deadline(start time.Time) time.Time {
	end := start.Add(s.machine.Spec.Timeouts.DrainOrDefault())
	if at := s.machine.Status.InterruptionTime; machinestate.Interrupted(s.machine) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
