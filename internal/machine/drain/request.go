package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Request asks for the drain of a machine's Node.
type Request struct {
	// Machine and its UID.
	Machine types.NamespacedName
	UID     types.UID

	// Node to drain and its UID. Without a name there is nothing to drain. Pods of another Node that has taken the name
	// are left alone.
	Node    string
	NodeUID types.UID

	// Start of the drain and its Deadline, both as persisted by the caller, who moves them after an outage of the target
	// cluster. They are the same in every call for one drain: a Start after the end of the last drain asks for another
	// one. A zero Deadline means that there is none.
	Start, Deadline time.Time

	// Announced is true where the Deadline is as early as it is because the Node shows that its instance is about to be
	// taken away. Nothing is sent then while the Node itself, read anew, no longer shows it: the caller's view was late.
	Announced bool

	// NodeReachable is false when the node's kubelet is silent. Then terminating pods count as gone.
	NodeReachable bool

	// NotReadySince is since when the node's kubelet reports that the node is not Ready, zero if it does not. Then
	// terminating pods count as gone after NotReadyPatience.
	NotReadySince time.Time

	// Epoch is that of the outages that are left out of Start and Deadline, see Options.Epoch.
	Epoch uint64

	// Force ends the drain at once, also in the middle, and Skip does not begin it. In both cases no pod is touched any
	// more.
	Force, Skip bool
}

// needless says why there is nothing to do, empty if there may be.
func (r Request) needless() string {
	switch {
	case r.Force:
		return "The annotation " + v1beta1.AnnotationForceDelete + " is set."
	case r.Skip:
		return "The annotation " + v1beta1.AnnotationSkipDrain + " is set."
	case r.Node == "":
		return "There is no Node."
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

// VolumesRequest asks for the wait for the volumes of a drained Node. It makes no sense for an unreachable node whose
// instance may still run: nobody detaches its volumes. A later Drained than that of a wait that is over asks for
// another.
type VolumesRequest struct {
	// Machine and its UID.
	Machine types.NamespacedName
	UID     types.UID

	// Node and its UID. Without a name there is nothing to wait for.
	Node    string
	NodeUID types.UID

	// Reported is status.volumesAttached of the Node. It may come from a cache: it is read anew before it is waited for.
	Reported []corev1.AttachedVolume

	// Drained is when the last pod was gone: Outcome.LastPodGone of the drain, or the transition time of the Drained
	// condition. For a Node that is out of service it is when it became that. Timeout counts from then.
	Drained time.Time
	Timeout time.Duration

	// Epoch is that of the outages that are left out of Drained, see Options.Epoch.
	Epoch uint64

	// Force ends the wait at once.
	Force bool
}

// needless says why there is nothing to do, empty if there may be.
func (r VolumesRequest) needless() string {
	switch {
	case r.Force:
		return "The annotation " + v1beta1.AnnotationForceDelete + " is set."
	case r.Node == "":
		return "There is no Node."
	}
	return ""
}

// left returns how much of the timeout is left.
func (r VolumesRequest) left(now time.Time) time.Duration {
	return r.Drained.Add(r.Timeout).Sub(now)
}

// Outcome is where a drain, or the wait for volumes, stands.
type Outcome struct {
	// Done is true when the machine may go on.
	Done bool

	// Reason and Message for the condition Drained or VolumesDetached. While waiting, the message of one reason is
	// rewritten only when what is in the way changes, and at most every 30 s.
	Reason, Message string

	// Blocked are the pods that hold up the drain at the moment.
	Blocked []Blocker

	// Denied is true while the API server refuses to tell what the drain has to know. Only its administrator can help.
	Denied bool

	// Attached are the volumes that the wait for volumes is for, as far as it is known at the moment.
	Attached []string

	// LastPodGone is when a drain was seen to be done, zero before.
	LastPodGone time.Time
}

// looksLike shows whether there is no difference to write down.
func (o Outcome) looksLike(other Outcome) bool {
	return o.Done == other.Done && o.Reason == other.Reason && o.Message == other.Message
}
