package controllermanager

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// AttachDetach is the actor that attaches volumes and detaches them.
	AttachDetach = "attach-detach"
	// StorageDriver is the CSI driver of all volumes.
	StorageDriver = "csi.example.com"
	// AnnotationManaged is a kubelet's: the volumes of its Node are attached for it.
	AnnotationManaged = "volumes.kubernetes.io/controller-managed-attach-detach"
	// longestUse is how long a Node that is not ready may keep a volume in use that no pod wants any more.
	longestUse = 6 * time.Minute
)

var attachmentKind = storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")

// Volumes is the attach-detach controller: which volumes pods have, and what it remembers of those that are attached.
type Volumes struct {
	// Of names the PersistentVolumes of a pod.
	Of func(*corev1.Pod) []string
	// attached is by the names of VolumeAttachments.
	attached map[string]attached
}

// attached is what is remembered of a volume.
type attached struct {
	node string
	// unwanted is since when no pod wants it, zero while one does.
	unwanted time.Time
	// inUse is what its Node last reported: it may be gone.
	inUse bool
}

// Clone returns a copy that goes its own way, for the pods of another world.
func (v *Volumes) Clone(of func(*corev1.Pod) []string) *Volumes {
	c := &Volumes{Of: of, attached: map[string]attached{}}
	for name, a := range v.attached {
		c.attached[name] = a
	}
	return c
}

// Reported is the name under which a Node reports a volume.
func Reported(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + StorageDriver + "^" + volume)
}

// InUse reports whether a Node's kubelet says that it may have mounted a volume.
func InUse(node *corev1.Node, volume string) bool {
	return slices.Contains(node.Status.VolumesInUse, Reported(volume))
}

// ReportsAttached reports whether a Node's status says that a volume is attached, without which no kubelet mounts it.
func ReportsAttached(node *corev1.Node, volume string) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, named(volume))
}

func named(volume string) func(corev1.AttachedVolume) bool {
	return func(v corev1.AttachedVolume) bool { return v.Name == Reported(volume) }
}

// VolumeOf names the volume of a VolumeAttachment.
func VolumeOf(va *storagev1.VolumeAttachment) string { return *va.Spec.Source.PersistentVolumeName }

// terminated reports whether the containers of a pod have ended, or never ran and never will.
func terminated(p *corev1.Pod) bool {
	return Ended(p) || !p.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Terminated == nil && c.State.Waiting == nil
		})
}

// volumeChoices attaches the volumes of pods to their nodes, one node at a time, and detaches those that no pod of the
// node wants: first the Node's report is withdrawn, then the VolumeAttachment is deleted. The storage driver does the
// rest.
func (m Manager) volumeChoices(nodes map[string]*corev1.Node) (out []Choice) {
	if m.Volumes == nil {
		return nil
	}
	attachments := m.Server.Snapshot(attachmentKind)
	at := map[string]bool{} // Volumes that have an attachment, wherever.
	for _, o := range attachments {
		at[VolumeOf(o.(*storagev1.VolumeAttachment))] = true
	}
	wanted := map[string]bool{}
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		node := nodes[p.Spec.NodeName]
		if p.Spec.NodeName == "" || terminated(p) {
			continue
		}
		for _, volume := range m.Volumes.Of(p) {
			wanted[attachmentName(volume, p.Spec.NodeName)] = true
			if !at[volume] && node != nil && node.Annotations[AnnotationManaged] == "true" {
				out = append(out, m.attach(volume, p.Spec.NodeName))
				at[volume] = true
			}
		}
	}
	m.observeVolumes(attachments, nodes, wanted)
	for _, o := range attachments {
		va := o.(*storagev1.VolumeAttachment)
		if va.DeletionTimestamp.IsZero() && va.Status.Attached {
			out = append(out, m.attachedChoices(va, nodes[va.Spec.NodeName])...)
		}
	}
	return out
}

func attachmentName(volume, node string) string { return volume + "-to-" + node }

func (m Manager) attach(volume, node string) Choice {
	return choose(func() error {
		va := &storagev1.VolumeAttachment{}
		va.Name = attachmentName(volume, node)
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: StorageDriver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}
		return client.IgnoreAlreadyExists(m.Server.Client(AttachDetach).Create(context.Background(), va))
	}, "attach volume %s to node %s", volume, node)
}

// attachedChoices is what becomes of a volume that is attached.
func (m Manager) attachedChoices(va *storagev1.VolumeAttachment, node *corev1.Node) (out []Choice) {
	volume, detachable := VolumeOf(va), m.detachable(va, node)
	reported := node != nil && ReportsAttached(node, volume)
	switch {
	case !detachable && !reported && node != nil:
		out = append(out, m.reportAttached(node, "node %s reports volume %s", volume,
			append(slices.Clone(node.Status.VolumesAttached), corev1.AttachedVolume{Name: Reported(volume)})))
	case detachable && reported:
		out = append(out, m.reportAttached(node, "node %s no longer reports volume %s", volume,
			slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), named(volume))))
	case detachable:
		out = append(out, choose(func() error {
			return client.IgnoreNotFound(m.Server.Client(AttachDetach).Delete(context.Background(), va.DeepCopy()))
		}, "detach volume %s from node %s", volume, va.Spec.NodeName))
	}
	return out
}

func (m Manager) reportAttached(node *corev1.Node, what, volume string, all []corev1.AttachedVolume) Choice {
	changed := node.DeepCopy()
	changed.Status.VolumesAttached = all
	return choose(func() error { return m.patchStatus(AttachDetach, node, changed) }, what, node.Name, volume)
}

// detachable reports whether a volume is detached now: when no pod wants it and the kubelet does not have it in use, by
// force where that kubelet is said to be dead or has not been ready for long.
func (m Manager) detachable(va *storagev1.VolumeAttachment, node *corev1.Node) bool {
	known := m.Volumes.attached[va.Name]
	switch {
	case known.unwanted.IsZero():
		return false
	case !known.inUse, node != nil && OutOfService(node):
		return true
	}
	return !healthy(node) && !m.Now().Before(known.unwanted.Add(longestUse))
}

func healthy(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	ready := Ready(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// observeVolumes brings up to date what is remembered of the volumes that are attached.
func (m Manager) observeVolumes(attachments []client.Object, nodes map[string]*corev1.Node, wanted map[string]bool) {
	next := make(map[string]attached, len(attachments))
	for _, o := range attachments {
		va := o.(*storagev1.VolumeAttachment)
		known := m.Volumes.attached[va.Name]
		known.node = va.Spec.NodeName
		if node := nodes[va.Spec.NodeName]; node != nil {
			known.inUse = InUse(node, VolumeOf(va))
		}
		if wanted[va.Name] {
			known.unwanted = time.Time{}
		} else if known.unwanted.IsZero() {
			known.unwanted = m.Now()
		}
		next[va.Name] = known
	}
	m.Volumes.attached = next
}

// volumesDue calls consider with the times at which volumes are detached by force.
func (m Manager) volumesDue(nodes map[string]*corev1.Node, consider func(time.Time)) {
	if m.Volumes == nil {
		return
	}
	for _, known := range m.Volumes.attached {
		if known.inUse && !known.unwanted.IsZero() && !healthy(nodes[known.node]) {
			consider(known.unwanted.Add(longestUse))
		}
	}
}
