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
)

// Drainer drains Nodes with its own workers, and enqueues a Machine when there is something new to report.
type Drainer interface {
	Drain(context.Context, drain.Request) drain.Outcome
	VolumesDetached(context.Context, drain.VolumesRequest) drain.Outcome
	Forget(machine types.NamespacedName)
}

// drainBackstop is after how long a draining Machine is reconciled without an event.
const drainBackstop = time.Minute

// drain cordons the Node, empties it and waits for its volumes.
func (p *pass) drain(ctx context.Context) (progress, error) {
	if p.node == nil {
		p.suspendDrain() // Of one that is gone, or that nobody waits for.
		return next, nil
	}
	_, skip := p.machine.Annotations[v1beta1.AnnotationSkipDrain]
	if !p.forced() {
		cordoned, err := drain.Cordon(ctx, p.Target.Nodes, p.node)
		switch {
		case apierrors.IsNotFound(err):
			p.node = nil // Gone since it was read.
			return next, nil
		case apierrors.IsConflict(err):
			return wait, err // Another one has taken its place, or others write to it all the time: it is looked for anew.
		case err != nil:
			return p.targetUnreachable(ctx, err)
		}
		p.node = cordoned
	}
	p.catchUp()
	p.leaveOutagesOut()
	key := client.ObjectKeyFromObject(p.machine)
	reachable := nodeReachable(p.node)
	if !p.isTrue(v1beta1.ConditionDrained) {
		start := p.drainStart()
		outcome := p.Drainer.Drain(ctx, drain.Request{
			Machine: key, UID: p.machine.UID, Node: p.node.Name, NodeUID: p.node.UID,
			Start: start, Deadline: p.drainDeadline(start), Announced: p.shownByNode(),
			NodeReachable: reachable, NotReadySince: notReadySince(p.node), Force: p.forced(), Skip: skip, Epoch: p.epoch,
		})
		outcome = p.unlessReported(v1beta1.ConditionDrained, outcome)
		transition := p.setCondition(v1beta1.ConditionDrained, outcome.Done, outcome.Reason, outcome.Message)
		if !outcome.Done {
			if transition && outcome.Denied {
				p.warn(outcome.Reason, "Drain", outcome.Message)
			}
			p.deleting(v1beta1.ReasonDraining, outcome.Message)
			p.operation(v1beta1.OperationDrain, v1beta1.OperationProcessing, outcome.Message, "")
			p.requeueIn(drainBackstop)
			return wait, nil
		}
	}
	if p.isTrue(v1beta1.ConditionVolumesDetached) || p.outOfService() {
		return next, nil
	}
	if !reachable {
		// Nobody detaches the volumes of a silent node while its instance may still run.
		p.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "The node is unreachable.")
		return next, nil
	}
	if since := notReadySince(p.node); !since.IsZero() && p.now.Sub(since) >= drain.NotReadyPatience {
		// Nor can a kubelet whose pods do not end unmount what they use.
		p.setCondition(v1beta1.ConditionVolumesDetached, false, v1beta1.ReasonSkipped, "The node is not Ready.")
		return next, nil
	}
	drained := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime.Time
	outcome := p.Drainer.VolumesDetached(ctx, drain.VolumesRequest{
		Machine: key, UID: p.machine.UID, Node: p.node.Name, NodeUID: p.node.UID, Reported: p.node.Status.VolumesAttached,
		Drained: drained, Timeout: p.machine.Spec.Timeouts.VolumeDetachOrDefault(), Force: p.forced(), Epoch: p.epoch,
	})
	outcome = p.unlessReported(v1beta1.ConditionVolumesDetached, outcome)
	p.setCondition(v1beta1.ConditionVolumesDetached, outcome.Done, outcome.Reason, outcome.Message)
	if !outcome.Done {
		p.deleting(v1beta1.ReasonWaitingForVolumeDetach, outcome.Message)
		p.requeueIn(drainBackstop)
		return wait, nil
	}
	return next, nil
}

// drainReport is this process's last written report of a drain that waits.
type drainReport struct {
	kind, reason, message string
	at                    time.Time
}

// unlessReported returns the outcome with the message that is already written if this process has reported its own a
// moment ago and somebody else has replaced them since. That is another leader, for as long as two take themselves
// for one: each has its own view of the budgets, and they would correct each other without end.
func (p *pass) unlessReported(kind string, o drain.Outcome) drain.Outcome {
	if o.Done {
		return o
	}
	last := p.states.get(p.machine).teardown.drainReport
	repeats := last == drainReport{kind, o.Reason, o.Message, last.at} && p.now.Sub(last.at) < drainBackstop
	if written := meta.FindStatusCondition(p.machine.Status.Conditions, kind); repeats && written != nil &&
		written.Status == metav1.ConditionFalse {
		o.Reason, o.Message = written.Reason, written.Message
		return o
	}
	p.unwrittenDrainReport = drainReport{kind, o.Reason, o.Message, p.now}
	return o
}

// catchUp lets what is timed from here on begin now: what the pass did before may have taken long.
func (p *pass) catchUp() { p.now = p.Clock.Now() }

// drainStart is when the drain began: when Drained became False, which is written down as soon as it has to wait.
func (p *pass) drainStart() time.Time {
	if c := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionDrained); c != nil &&
		c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return p.now.Truncate(time.Second) // As it will be read when it was written down: it stays the same drain.
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
