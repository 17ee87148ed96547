package machine

import (
	"context"
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

// Drainer drains Nodes with its own workers, and enqueues a Machine when there is something new to report.
type Drainer interface {
	Drain(context.Context, drain.Request) drain.Outcome
	VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome
	Forget(machine types.NamespacedName)
}

// drainBackstop is after how long a draining Machine is reconciled without an event.
const drainBackstop = time.Minute

// drainStep empties the Node, for a deletion, an update or an interruption, and puts it back into service.
type drainStep struct {
	*pass
	// epoch is that of the outages that are left out of the drain's time.
	epoch uint64
	// unwritten is the report of a drain that the next write of the status has.
	unwritten drainReport
}

// run cordons the Node, empties it and waits for its volumes.
func (s *drainStep) run(ctx context.Context) (progress, error) {
	if s.node == nil {
		s.suspend() // Of one that is gone, or that nobody waits for.
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
			s.node = nil // Gone since it was read.
			return next, nil
		case apierrors.IsConflict(err):
			return onError, err // Another one has taken its place, or others write to it all the time: it is looked for anew.
		case err != nil:
			return s.teardown.targetUnreachable(ctx, err)
		}
		s.node = cordoned
	}
	s.catchUp()
	s.leaveOutagesOut()
	key := client.ObjectKeyFromObject(s.machine)
	reachable := nodeReachable(s.node)
	if !s.isTrue(v1beta1.ConditionDrained) {
		start := s.start()
		outcome := s.Drainer.Drain(ctx, drain.Request{
			Machine: key, UID: s.machine.UID, Node: s.node.Name, NodeUID: s.node.UID,
			Start: start, Deadline: s.deadline(start), Announced: s.interruption.shownByNode(),
			NodeReachable: reachable, NotReadySince: notReadySince(s.node), Force: s.teardown.forced(), Skip: skip,
			Epoch: s.epoch,
		})
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
		// Nobody detaches the volumes of a silent node while its instance may still run.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "The node is unreachable.")
		return next, nil
	}
	if since := notReadySince(s.node); !since.IsZero() && s.now.Sub(since) >= drain.NotReadyPatience {
		// Nor can a kubelet whose pods do not end unmount what they use.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "The node is not Ready.")
		return next, nil
	}
	drained := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime.Time
	outcome := s.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Machine: key, UID: s.machine.UID, Node: s.node.Name, NodeUID: s.node.UID, Reported: s.node.Status.VolumesAttached,
		Drained: drained, Timeout: s.machine.Spec.Timeouts.VolumeDetachOrDefault(), Force: s.teardown.forced(),
		Epoch: s.epoch,
	})
	outcome = s.unlessReported(v1beta1.ConditionVolumesDetached, outcome)
	s.setCondition(v1beta1.ConditionVolumesDetached, outcome.Done, outcome.Reason, outcome.Message)
	if !outcome.Done {
		s.teardown.deleting(v1beta1.ReasonWaitingForVolumeDetach, outcome.Message)
		return onDrain | s.after(drainBackstop), nil
	}
	return next, nil
}

// redrainIfInService begins another drain where the Node was drained and an administrator has uncordoned it since: it
// may have new pods. The cache may lack our own cordon after a restart, so the Node is read at the API server.
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

// drainReport is this process's last written report of a drain that waits.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported returns the outcome with the message that is already written if this process has reported its own a
// moment ago and somebody else has replaced them since. That is another leader, for as long as two take themselves
// for one: each has its own view of the budgets, and they would correct each other without end.
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

// catchUp lets what is timed from here on begin now: what the pass did before may have taken long.
func (s *drainStep) catchUp() { s.now = s.Clock.Now() }

// start is when the drain began: when Drained became False, which is written down as soon as it has to wait.
func (s *drainStep) start() time.Time {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return s.now.Truncate(time.Second) // As it will be read when it was written down: it stays the same drain.
}

// notReadySince returns since when the Node's kubelet reports that the Node is not Ready, zero if it does not.
func notReadySince(node *corev1.Node) time.Time {
	if c := readyCondition(node); c != nil && c.Status == corev1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// nodeReachable reports whether the Node's kubelet reports.
func nodeReachable(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status != corev1.ConditionUnknown
}

// end takes back what was done to the node for an update. The node is uncordoned when it is Ready again.
func (s *drainStep) end() {
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrained)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionDrainExtended)
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionVolumesDetached)
	if s.Drainer != nil {
		s.Drainer.Forget(client.ObjectKeyFromObject(s.machine))
	}
}

// suspend keeps the workers from evicting pods for an update that does not go on now. The node stays as it is, and
// the drain goes on as the same one.
func (s *drainStep) suspend() {
	if s.Drainer != nil {
		s.Drainer.Forget(client.ObjectKeyFromObject(s.machine))
	}
}

// uncordon ends the disruption of an update once the node is Ready again. One that was drained for a change that is
// still to be made stays out of service.
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
	// What the node was drained for may have come since.
	if err := s.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// A request that came late from a former leader is not in the cache yet, and would find pods on the node.
	node, err := drain.Uncordon(ctx, s.Target.Nodes, s.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	s.node = node
	return nil
}

// deadline is when a drain that began at start ends. Before an announced interruption that is a moment
// before, in however little time that leaves.
func (s *drainStep) deadline(start time.Time) time.Time {
	end := start.Add(s.machine.Spec.Timeouts.DrainOrDefault())
	if at := s.machine.Status.InterruptionTime; machinestate.Interrupted(s.machine) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
