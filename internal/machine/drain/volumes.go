package drain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"machinist.dev/machinist/api/v1beta1"
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

// preservedVolumes are the volumes of pods that a drain leaves on the node.
type preservedVolumes struct {
	// names are the names of the PersistentVolumes. reported are the names under which the Node reports them.
	names    map[string]bool
	reported map[corev1.UniqueVolumeName]bool
}

// relevantVolumes returns the sorted names of the attached volumes for which another node may be waiting. These are
// neither volumes of pods that stay on the node, nor volumes without a PersistentVolume, which belong to one pod only.
//
// It uses the VolumeAttachments because they outlive the Node's report, which is withdrawn before the volume is
// detached. It also uses the report, because only the report contains volumes that are attached without a
// VolumeAttachment.
func relevantVolumes(attachments []Attachment, report []corev1.AttachedVolume, preserved preservedVolumes) []string {
	var attached, reported []string
	ignored := map[corev1.UniqueVolumeName]bool{"": true}
	for _, a := range attachments {
		switch {
		case a.PersistentVolume == "":
			ignored[a.Volume] = true
		case !preserved.names[a.PersistentVolume]:
			attached = append(attached, a.PersistentVolume)
		}
	}
	for _, v := range report {
		if !ignored[v.Name] && !preserved.reported[v.Name] {
			reported = append(reported, string(v.Name))
		}
	}
	// Attachments and report name the same volumes differently. Prefer the names of PersistentVolumes, which users know.
	if len(attached) == 0 {
		attached = reported
	}
	slices.Sort(attached)
	return slices.Compact(attached)
}

// volumesOutcome decides whether the machine waits for the attached volumes.
func volumesOutcome(request VolumesRequest, attached []string, now time.Time) Outcome {
	if len(attached) == 0 {
		return Outcome{Done: true, Reason: v1beta1.ReasonVolumesDetached,
			Message: "No volume that another node may need is attached."}
	}
	names := joinNames(attached, func(name string) string { return name })
	if request.left(now) <= 0 {
		return Outcome{Done: true, Reason: v1beta1.ReasonVolumeDetachTimeout,
			Message: fmt.Sprintf("Timed out after %s while waiting for volumes to be detached: %s.", request.Timeout, names)}
	}
	return Outcome{Reason: v1beta1.ReasonWaitingForVolumeDetach, Attached: attached,
		Message: fmt.Sprintf("Volumes still attached to node %s: %s.", request.Node, names)}
}
