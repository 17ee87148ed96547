package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Attachment is the part of a VolumeAttachment that the wait for volumes needs.
type Attachment struct {
	// PersistentVolume is the name of the attached PersistentVolume. It is empty for an inline volume of a pod.
	PersistentVolume string
	// Volume is the name under which the Node reports an inline volume, if it is known.
	Volume corev1.UniqueVolumeName
}

// attachmentOf converts a VolumeAttachment.
func attachmentOf(va *storagev1.VolumeAttachment) Attachment {
	var a Attachment
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		a.PersistentVolume = *name
	} else if inline := va.Spec.Source.InlineVolumeSpec; inline != nil {
		a.Volume = reportedName(inline.CSI)
	}
	return a
}

// reportedName returns the name under which a Node reports a volume in status.volumesAttached. It is empty if only the
// volume's plugin knows it.
func reportedName(source *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	if source == nil {
		return ""
	}
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + source.Driver + "^" + source.VolumeHandle)
}

// VolumeInput is the input of PlanVolumes.
type VolumeInput struct {
	// Attachments are the attachments to the node.
	Attachments []Attachment
	// Reported is status.volumesAttached of the Node.
	Reported []corev1.AttachedVolume
	// Preserved contains the names of PersistentVolumes that are used by pods which the drain leaves on the node.
	Preserved map[string]bool
	// PreservedReported contains the names under which the Node reports these volumes.
	PreservedReported map[corev1.UniqueVolumeName]bool
	// Now is the time of the decision.
	Now time.Time
	// Drained is when the last pod was gone. Timeout is how long to wait from then on.
	Drained time.Time
	Timeout time.Duration
	// RecheckAfter is VolumeDecision.RecheckAfter of the previous decision, or 0 for the first one.
	RecheckAfter time.Duration
}

// VolumeDecision is the decision whether to wait for volumes.
type VolumeDecision struct {
	// Done is true if there is nothing left to wait for, or if the timeout has passed.
	Done bool
	// TimedOut is true if Done is true although Waiting is not empty.
	TimedOut bool
	// Waiting contains the sorted names of the relevant volumes that are still attached.
	Waiting []string
	// RecheckAfter is the time between two checks. It is part of the next VolumeInput.
	RecheckAfter time.Duration
	// Next is when to check again at the latest. It is 0 if Done is true.
	Next time.Duration
}

// PlanVolumes decides whether to wait for the volumes of a drained node. Relevant are volumes for which another node
// may be waiting. Volumes of pods that stay on the node are not relevant, and neither are volumes without a
// PersistentVolume, because they belong to one pod only.
//
// PlanVolumes uses the VolumeAttachments because they outlive the Node's report, which is withdrawn before the volume
// is detached. It also uses the report, because only the report contains volumes that are attached without a
// VolumeAttachment.
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

	// Attachments and report name the same volumes differently. Prefer the names of PersistentVolumes, which users know.
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
		d.RecheckAfter = min(max(2*in.RecheckAfter, minRecheck), maxRecheck)
		d.Next = min(d.RecheckAfter, left)
	}
	return d
}
