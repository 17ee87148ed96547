package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Subject identifies the machine and the Node of a request.
type Subject struct {
	Machine types.NamespacedName
	UID     types.UID

	// Node and NodeUID identify the Node. Pods of another Node with the same name are not touched.
	Node    string
	NodeUID types.UID

	// Epoch is the value of Options.Epoch for which the times of the request exclude outages.
	Epoch uint64

	// Force ends the drain or the wait at once, even if it is in progress.
	Force bool
}

// Request asks for the drain of a machine's Node.
type Request struct {
	Subject

	// Start and Deadline are stored by the caller, who moves them after an outage of the target cluster. A zero Deadline
	// means that there is none.
	Start, Deadline time.Time

	// Announced is true if Deadline is early because the Node shows that its instance is about to be removed. In this
	// case, nothing is sent if a fresh read of the Node no longer shows that: the caller's cache was stale.
	Announced bool

	// NodeReachable is false if the node's kubelet does not report. Terminating pods then count as gone.
	NodeReachable bool

	// NotReadySince is since when the node's kubelet reports that the node is not Ready. It is zero if the node is Ready
	// or does not report. If it is set, terminating pods count as gone after NotReadyPatience.
	NotReadySince time.Time

	// Skip prevents the drain from starting. As with Force, no more pods are touched.
	Skip bool
}

// skipReason returns why there is nothing to do. It is empty if there may be something to do.
func (r Request) skipReason() string {
	switch {
	case r.Force:
		return "The drain was ended by the annotation " + v1beta1.AnnotationForceDelete + "."
	case r.Skip:
		return "The drain was skipped because of the annotation " + v1beta1.AnnotationSkipDrain + "."
	}
	return ""
}

func (r Request) equal(other Request) bool {
	if !r.Start.Equal(other.Start) || !r.Deadline.Equal(other.Deadline) || !r.NotReadySince.Equal(other.NotReadySince) {
		return false
	}
	other.Start, other.Deadline, other.NotReadySince = r.Start, r.Deadline, r.NotReadySince
	return r == other
}

// patience returns the time limit of one eviction or deletion. It is long, because a call that is cut off may never
// complete, but it leaves time for other calls if the drain has only seconds.
func (r Request) patience(now time.Time) time.Duration {
	if r.Deadline.IsZero() {
		return callTimeout
	}
	return min(callTimeout, max(r.Deadline.Sub(now)/4, slowCall))
}

// VolumesRequest asks to wait for the volumes of a drained Node. It is useless for an unreachable node whose instance
// may still run, because no controller detaches its volumes. A Drained time later than that of a wait that is over
// requests another wait.
type VolumesRequest struct {
	Subject

	// Reported is status.volumesAttached of the Node. It may come from a cache; the Node is read again before anything
	// waits for it.
	Reported []corev1.AttachedVolume

	// Drained is when the last pod was gone: Outcome.LastPodGone of the drain, or the transition time of the Drained
	// condition. For a Node that is out of service, it is when the Node was declared so. Timeout counts from Drained.
	Drained time.Time
	Timeout time.Duration
}

// left returns how much of the timeout remains.
func (r VolumesRequest) left(now time.Time) time.Duration {
	return r.Drained.Add(r.Timeout).Sub(now)
}

// Outcome is the progress of a drain, or of the wait for volumes.
type Outcome struct {
	// Done is true if the machine may continue.
	Done bool

	// Reason and Message are for the condition Drained or VolumesDetached. They are empty until a worker has checked the
	// Node. While the machine waits, the message of one reason changes only if the set of blockers changes, and at most
	// every 30 s.
	Reason, Message string

	// Blocked are the pods that block the drain at the moment.
	Blocked []Blocker

	// Denied is true while the API server does not allow the controller to read what it needs. Only an administrator can
	// fix this.
	Denied bool

	// Attached are the volumes for which the wait is needed, as far as they are known.
	Attached []string

	// LastPodGone is when the controller saw that the drain was done. It is zero before.
	LastPodGone time.Time
}

// sameReport reports whether both outcomes have the same reason and message.
func (o Outcome) sameReport(other Outcome) bool {
	return o.Done == other.Done && o.Reason == other.Reason && o.Message == other.Message
}
