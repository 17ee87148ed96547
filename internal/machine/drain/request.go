package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Subject identifies the machine and the Node of a request.
type Subject struct {
	Machine types.NamespacedName
	UID     types.UID

	// Node and NodeUID identify the Node. If another Node has the same name, its pods are not evicted.
	Node    string
	NodeUID types.UID

	// Epoch is the number that Options.Epoch returned when the caller created the request. The deadline in the request
	// includes the durations of all outages before this time.
	Epoch uint64

	// Policy is spec.drain of the machine. It is nil if the spec does not define how to drain the Node.
	Policy *v1beta1.MachineDrain

	// Force ends the drain, or the wait for volumes, at once, even if it is in progress.
	Force bool
}

// Request requests the drain of a machine's Node.
type Request struct {
	Subject

	// Start and Deadline are stored by the caller, who moves both after an outage of the target cluster. A zero
	// Deadline means that there is no deadline.
	Start, Deadline time.Time

	// InterruptionAnnounced is true if Deadline was set early because the Node announces that its instance is about
	// to be removed. The worker then reads the Node before it sends evictions. If the Node no longer announces the
	// removal of its instance, the worker evicts no pods.
	InterruptionAnnounced bool

	// NodeReachable is false if the node's kubelet no longer reports its status. Terminating pods then count as gone.
	NodeReachable bool

	// NotReadySince is the time at which the kubelet began to report that the node is not Ready. NotReadySince is
	// zero if the node is Ready, or if the time is unknown. If NotReadySince is set, a terminating pod counts as gone
	// after NotReadyPatience.
	NotReadySince time.Time

	// VolumeDetachTimeout limits how long the eviction of a pod with volumes waits for the volumes of an earlier pod.
	VolumeDetachTimeout time.Duration

	// SkipDrain is true if no pods may be evicted: a new drain does not start, and a drain in progress ends.
	SkipDrain bool
}

func (r Request) skipReason() string {
	switch {
	case r.Force:
		return "The drain was ended by the annotation " + v1beta1.AnnotationForceDelete + "."
	case r.SkipDrain:
		return "The drain was skipped because of the annotation " + v1beta1.AnnotationSkipDrain + "."
	}
	return ""
}

func (r Request) equal(other Request) bool {
	if !r.Start.Equal(other.Start) || !r.Deadline.Equal(other.Deadline) || !r.NotReadySince.Equal(other.NotReadySince) {
		return false
	}
	if !equality.Semantic.DeepEqual(r.Policy, other.Policy) {
		return false
	}
	other.Start, other.Deadline, other.NotReadySince = r.Start, r.Deadline, r.NotReadySince
	other.Policy = r.Policy
	return r == other
}

// longTimeout returns the time limit for a call that may take long. This limit leaves time for other calls before the
// deadline of the drain.
func (r Request) longTimeout(now time.Time) time.Duration {
	if r.Deadline.IsZero() {
		return maxTimeout
	}
	return min(maxTimeout, max(r.Deadline.Sub(now)/4, quickTimeout))
}

// VolumesRequest contains the arguments of Controller.VolumesDetached, which waits until the volumes of a drained
// Node are detached. Kubernetes does not detach the volumes of an unreachable node that may still run. A caller must
// not wait for these volumes. If a wait has ended and the caller sends a request with a later DrainTime, the
// Controller waits again.
type VolumesRequest struct {
	Subject

	// ReportedVolumes is status.volumesAttached of the Node. The list may come from a cache. If the list contains
	// volumes to wait for, a worker reads the Node again.
	ReportedVolumes []corev1.AttachedVolume

	// DrainTime is the time when the last pod was gone: Outcome.LastPodGone of the drain, or the transition time of
	// the Drained condition. If the Node was declared out of service, DrainTime is the time of that declaration.
	// Timeout starts at DrainTime.
	DrainTime time.Time
	Timeout   time.Duration
}

func (r VolumesRequest) timeLeft(now time.Time) time.Duration {
	return r.DrainTime.Add(r.Timeout).Sub(now)
}

// Outcome is the progress of a drain, or of the wait for volumes.
type Outcome struct {
	// IsDone is true if the drain or the wait is over.
	IsDone bool

	// Reason and Message are the reason and the message for the condition Drained or VolumesDetached. Both fields are
	// empty until a worker has checked the Node. While the reason stays the same, the message changes only if the set
	// of blockers changes, and at most every 30 s.
	Reason, Message string

	// Blockers contains the pods that block the drain now.
	Blockers []Blocker

	// PermissionDenied is true if the controller has no permission to read what it needs. Only an administrator can
	// fix this.
	PermissionDenied bool

	// AttachedVolumes contains the volumes for which the machine waits, if they are known.
	AttachedVolumes []string

	// LastPodGone is the time at which the controller found that the drain was done. LastPodGone is zero until then.
	LastPodGone time.Time
}

func (o Outcome) sameReport(other Outcome) bool {
	return o.IsDone == other.IsDone && o.Reason == other.Reason && o.Message == other.Message
}
