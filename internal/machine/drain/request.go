package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Request asks for the drain of a machine's Node.
type Request struct {
	// Machine and UID identify the machine.
	Machine types.NamespacedName
	UID     types.UID

	// Node and NodeUID identify the Node to drain. If Node is empty, there is nothing to drain. Pods of another Node with
	// the same name are not touched.
	Node    string
	NodeUID types.UID

	// Start and Deadline are stored by the caller, who moves them after an outage of the target cluster. They are the same
	// in every call for one drain. A Start after the end of the last drain requests another drain. A zero Deadline means
	// that there is none.
	Start, Deadline time.Time

	// Announced is true if Deadline is early because the Node shows that its instance is about to be removed. In this
	// case, nothing is sent if a fresh read of the Node no longer shows that: the caller's cache was stale.
	Announced bool

	// NodeReachable is false if the node's kubelet does not report. Terminating pods then count as gone.
	NodeReachable bool

	// NotReadySince is the time from which the node's kubelet has reported that the node is not Ready. It is zero if the
	// node is Ready or does not report. If it is set, terminating pods count as gone after NotReadyPatience.
	NotReadySince time.Time

	// Epoch is the value of Options.Epoch for which Start and Deadline exclude outages.
	Epoch uint64

	// Force ends the drain at once, even if it is in progress. Skip prevents the drain from starting. In both cases, no
	// more pods are touched.
	Force, Skip bool
}

// skipReason returns why there is nothing to do. It is empty if there may be something to do.
func (r Request) skipReason() string {
	switch {
	case r.Force:
		return "The drain was ended by the annotation " + v1beta1.AnnotationForceDelete + "."
	case r.Skip:
		return "The drain was skipped because of the annotation " + v1beta1.AnnotationSkipDrain + "."
	case r.Node == "":
		return "The machine has no Node to drain."
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

// VolumesRequest asks to wait for the volumes of a drained Node. It is useless for an unreachable node whose instance
// may still run, because no controller detaches its volumes. After a wait is over, a request with a later Drained time
// requests another wait.
type VolumesRequest struct {
	// Machine and UID identify the machine.
	Machine types.NamespacedName
	UID     types.UID

	// Node and NodeUID identify the Node. If Node is empty, there is nothing to wait for.
	Node    string
	NodeUID types.UID

	// Reported is status.volumesAttached of the Node. It may come from a cache; the Node is read again before anything
	// waits for it.
	Reported []corev1.AttachedVolume

	// Drained is when the last pod was gone: Outcome.LastPodGone of the drain, or the transition time of the Drained
	// condition. For a Node that is out of service, it is when the Node was declared so. Timeout counts from Drained.
	Drained time.Time
	Timeout time.Duration

	// Epoch is the value of Options.Epoch for which Drained excludes outages.
	Epoch uint64

	// Force ends the wait at once.
	Force bool
}

// skipReason returns why there is nothing to wait for. It is empty if there may be something to wait for.
func (r VolumesRequest) skipReason() string {
	switch {
	case r.Force:
		return "The wait for volumes was ended by the annotation " + v1beta1.AnnotationForceDelete + "."
	case r.Node == "":
		return "The machine has no Node with volumes."
	}
	return ""
}

// left returns how much of the timeout remains.
func (r VolumesRequest) left(now time.Time) time.Duration {
	return r.Drained.Add(r.Timeout).Sub(now)
}

// Outcome is the progress of a drain, or of the wait for volumes.
type Outcome struct {
	// Done is true if the machine may continue.
	Done bool

	// Reason and Message are for the condition Drained or VolumesDetached. While the machine waits, the message of one
	// reason changes only if the set of blockers changes, and at most every 30 s.
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
