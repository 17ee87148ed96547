package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Attachment is what the wait for volumes needs of a VolumeAttachment.
type Attachment struct {
	// PersistentVolume that is attached, empty for a volume written into a pod.
	PersistentVolume string
	// Volume is the name under which the Node reports a volume written into a pod, as far as that is known.
	Volume corev1.UniqueVolumeName
}

// attachmentOf reads a VolumeAttachment.
func attachmentOf(va *storagev1.VolumeAttachment) Attachment {
	var a Attachment
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		a.PersistentVolume = *name
	} else if inline := va.Spec.Source.InlineVolumeSpec; inline != nil {
		a.Volume = reportedName(inline.CSI)
	}
	return a
}

// reportedName returns the name under which a Node reports a volume in status.volumesAttached. It is empty where only
// the volume's plugin knows it.
func reportedName(source *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	if source == nil {
		return ""
	}
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + source.Driver + "^" + source.VolumeHandle)
}

// VolumeInput is what the wait for volumes is decided from.
type VolumeInput struct {
	// Attachments to the node.
	Attachments []Attachment
	// Reported is status.volumesAttached of the Node.
	Reported []corev1.AttachedVolume
	// Preserved names the PersistentVolumes that pods use which the drain leaves on the node.
	Preserved map[string]bool
	// PreservedReported holds the names under which the Node reports those.
	PreservedReported map[corev1.UniqueVolumeName]bool
	// Now is the time of the decision.
	Now time.Time
	// Drained is when the last pod was gone, Timeout how long to wait from then on.
	Drained time.Time
	Timeout time.Duration
	// RecheckAfter is the Look of the previous decision, 0 at first.
	RecheckAfter time.Duration
}

// VolumeDecision shows whether volumes are still waited for.
type VolumeDecision struct {
	// Done is true when there is none.
	Done bool
	// TimedOut is true when it is done although Waiting is not empty.
	TimedOut bool
	// Waiting names the volumes that matter and are still attached, in order.
	Waiting []string
	// RecheckAfter is the time between two checks; it goes into the next VolumeInput.
	RecheckAfter time.Duration
	// Next is when to check again at the latest, 0 when done.
	Next time.Duration
}

// PlanVolumes decides whether a drained node's volumes are still waited for. Those matter that another node may be
// waiting for: not those of pods that stay on the node until it goes, and not those that have no PersistentVolume and
// so belong to one pod alone.
//
// A VolumeAttachment outlives the Node's report: the report is withdrawn before the volume is detached. It is the
// report that knows the volumes that are attached without a VolumeAttachment.
func PlanVolumes(in VolumeInput) VolumeDecision {
	var attached, reported []string
	ignored := map[corev1.UniqueVolumeName]bool{"": true}
	for _, a := range in.Attachments {
		switch {
		case a.PersistentVolume == "":
			ignored[a.Volume] = true
		case !in.Preserved[a.PersistentVolume]:
			attached = append(attached, a.PersistentVolume)
		}
	}
	for _, v := range in.Reported {
		if !ignored[v.Name] && !in.PreservedReported[v.Name] {
			reported = append(reported, string(v.Name))
		}
	}

	// The two name the same volumes differently, and people know the former.
	d := VolumeDecision{Waiting: attached}
	if len(attached) == 0 {
		d.Waiting = reported
	}
	slices.Sort(d.Waiting)
	d.Waiting = slices.Compact(d.Waiting)

	left := in.Drained.Add(in.Timeout).Sub(in.Now)
	d.TimedOut = len(d.Waiting) > 0 && left <= 0
	d.Done = len(d.Waiting) == 0 || d.TimedOut
	if !d.Done {
		d.RecheckAfter = min(max(2*in.RecheckAfter, firstRecheck), maxRecheck)
		d.Next = min(d.RecheckAfter, left)
	}
	return d
}
