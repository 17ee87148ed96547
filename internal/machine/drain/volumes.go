package drain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Attachment contains the fields of a VolumeAttachment that the wait for volumes needs.
type Attachment struct {
	// PersistentVolume is the name of the attached PersistentVolume. It is empty for an inline volume of a pod.
	PersistentVolume string
	// Volume is the name of an inline volume in the status of the Node, if the controller knows it.
	Volume corev1.UniqueVolumeName
}

func attachmentOf(va *storagev1.VolumeAttachment) Attachment {
	var a Attachment
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		a.PersistentVolume = *name
	} else if inline := va.Spec.Source.InlineVolumeSpec; inline != nil {
		a.Volume = reportedName(inline.CSI)
	}
	return a
}

// reportedName returns the name of a volume in status.volumesAttached of a Node. It is empty if only the plugin of the
// volume knows this name.
func reportedName(source *corev1.CSIPersistentVolumeSource) corev1.UniqueVolumeName {
	if source == nil {
		return ""
	}
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + source.Driver + "^" + source.VolumeHandle)
}

// preservedVolumes contains the volumes of the pods that a drain leaves on the node.
type preservedVolumes struct {
	// names contains the names of PersistentVolumes. reported contains the names that the status of the Node uses for
	// the same volumes.
	names    map[string]bool
	reported map[corev1.UniqueVolumeName]bool
}

// relevantVolumes returns the sorted names of the attached volumes that another node may need. Volumes of pods that
// stay on the node are not relevant. Volumes without a PersistentVolume are not relevant either, because only one pod
// can use them.
//
// The Node removes a volume from its report before the volume is detached, and some volumes have no VolumeAttachment.
// Therefore, both sources are needed.
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
	// The VolumeAttachments and the report use different names for the same volume. Prefer the names of PersistentVolumes,
	// because users know them.
	if len(attached) == 0 {
		attached = reported
	}
	slices.Sort(attached)
	return slices.Compact(attached)
}

func volumesOutcome(request VolumesRequest, attached []string, now time.Time) Outcome {
	if len(attached) == 0 {
		return Outcome{IsDone: true, Reason: v1beta1.ReasonVolumesDetached,
			Message: "All volumes that other nodes may need are detached."}
	}
	names := joinNames(attached, func(name string) string { return name })
	if request.timeLeft(now) <= 0 {
		return Outcome{IsDone: true, Reason: v1beta1.ReasonVolumeDetachTimeout,
			Message: fmt.Sprintf("Timed out after %s while waiting for volumes to be detached: %s.", request.Timeout, names)}
	}
	return Outcome{Reason: v1beta1.ReasonWaitingForVolumeDetach, AttachedVolumes: attached,
		Message: fmt.Sprintf("Volumes still attached to node %s: %s.", request.Node, names)}
}
