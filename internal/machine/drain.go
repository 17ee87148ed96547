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

// drainStep drains the Node for a deletion, an update or an interruption, and puts it back into service.
type drainStep struct {
	*pass
	// epoch identifies the outages whose time does not count as time of the drain.
	epoch uint64
	// unwritten is the drain report that the next write of the status contains.
	unwritten drainReport
}

// run cordons and drains the Node, and waits until its volumes are detached.
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
			s.unchecked()
			return onDrain | s.after(drainBackstop), nil
		}
		outcome = s.unlessReported(v1beta1.ConditionDrained, outcome)
		transition := s.setCondition(v1beta1.ConditionDrained, outcome.Done, outcome.Reason, outcome.Message)
		if !outcome.Done {
			meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime = metav1.NewTime(start)
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
		// No component detaches the volumes of a silent node while its instance may still run.
		s.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "Skipped the wait for volumes, because the node is unreachable.")
		return next, nil
	}
	if since := notReadySince(s.node); !since.IsZero() && s.now.Sub(since) >= drain.NotReadyPatience {
		// A kubelet whose pods do not end cannot unmount their volumes either.
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

// unchecked keeps the report of a drain while no worker of this process has checked the Node. A deletion that has not
// reported its drain yet reports nothing, because an empty node should cost no write.
func (s *drainStep) unchecked() {
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

// redrainIfInService starts another drain if the Node was drained and an administrator has uncordoned it since, because
// it may have new pods. After a restart, the cache may not show our own cordon yet, so the Node is read from the API
// server.
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

// drainReport is the last report of a waiting drain that this process wrote.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported returns the outcome with the message that is already in the status, if this process reported its own
// message a moment ago and another process has replaced it since. This happens while two processes both believe that
// they lead. Each has its own view of the budgets, and without this check they would overwrite each other's messages
// without end.
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

// refreshNow sets now to the current time for what is timed from here on, because the earlier steps of the pass may
// have taken long.
func (s *drainStep) refreshNow() { s.now = s.Clock.Now() }

// start returns when the drain began, which is when the Node was cordoned. The condition Drained records that once a
// worker has found that the drain has to wait. Until then, only this process knows it, so a restart or an outage gives
// the drain its whole time again.
func (s *drainStep) start() time.Time {
	if c := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	began := s.states.get(s.machine).teardown.drainBegan
	if began.at.IsZero() || began.epoch != s.epoch {
		began = drainBegan{s.now.Truncate(time.Second), s.epoch} // The condition has whole seconds.
		s.states.update(s.machine, func(m *machineState) { m.teardown.drainBegan = began })
	}
	return began.at
}

// drainBegan is when a drain began that is not reported yet, and the epoch for which that time excludes outages.
type drainBegan struct {
	at    time.Time
	epoch uint64
}

// notReadySince returns since when the Node's kubelet has reported that the Node is not Ready, zero if it does not.
func notReadySince(node *corev1.Node) time.Time {
	if c := readyCondition(node); c != nil && c.Status == corev1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// nodeReachable reports whether the Node's kubelet still reports its status.
func nodeReachable(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status != corev1.ConditionUnknown
}

// end removes the conditions of a drain and stops its workers. The node is uncordoned when it is Ready again.
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
	if s.states.get(s.machine).teardown.drainBegan != (drainBegan{}) {
		s.states.update(s.machine, func(m *machineState) { m.teardown.drainBegan = drainBegan{} })
	}
}

// uncordon puts the node back into service after an update, once it is Ready again. A node that was drained for a
// pending update stays cordoned.
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
	// The Machine may have been given a new reason to keep the node drained since it was cached.
	if err := s.confirm(ctx, "putting its node back into service"); err != nil {
		return err
	}
	// An update request that a former leader wrote late may not be in the cache yet. The agent would then find pods on
	// the node.
	node, err := drain.Uncordon(ctx, s.Target.Nodes, s.node, v1beta1.NodeAnnotationUpdateRequested,
		v1beta1.NodeAnnotationUpdateResult)
	if err != nil {
		return err
	}
	s.node = node
	return nil
}

// deadline returns when a drain that began at start ends. Before an announced interruption, it ends interruptionMargin
// before that, however little time is left.
func (s *drainStep) deadline(start time.Time) time.Time {
	end := start.Add(s.machine.Spec.Timeouts.DrainOrDefault())
	if at := s.machine.Status.InterruptionTime; machinestate.Interrupted(s.machine) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
