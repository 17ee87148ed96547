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
	// AttachDetach is the actor that attaches and detaches volumes.
	AttachDetach = "attach-detach"
	// StorageDriver is the CSI driver of all volumes.
	StorageDriver = "csi.example.com"
	// AnnotationManaged is the annotation with which a kubelet asks the controller to attach its volumes.
	AnnotationManaged = "volumes.kubernetes.io/controller-managed-attach-detach"
	// forceDetachTimeout is how long an unneeded volume stays attached to a Node that is not ready.
	forceDetachTimeout = 6 * time.Minute
)

var attachmentKind = storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")

// Volumes contains the state of the attach-detach controller.
type Volumes struct {
	// NamesOf returns the names of the PersistentVolumes that a pod uses.
	NamesOf  func(*corev1.Pod) []string
	attached map[string]attachedVolume
}

type attachedVolume struct {
	node     string
	unwanted time.Time
	// inUse reports whether the last report of the Node listed the volume as in use. The Node may be deleted.
	inUse bool
}

// Clone returns an independent copy. The copy uses namesOf to find the volumes of a pod.
func (v *Volumes) Clone(namesOf func(*corev1.Pod) []string) *Volumes {
	c := &Volumes{NamesOf: namesOf, attached: map[string]attachedVolume{}}
	for name, a := range v.attached {
		c.attached[name] = a
	}
	return c
}

// ReportedName returns the unique name that a volume has in the status of a Node.
func ReportedName(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + StorageDriver + "^" + volume)
}

// InUse reports whether the status of a Node lists a volume as in use.
func InUse(node *corev1.Node, volume string) bool {
	return slices.Contains(node.Status.VolumesInUse, ReportedName(volume))
}

// ReportsAttached reports whether the status of a Node lists a volume as attached. The kubelet mounts only such
// volumes.
func ReportsAttached(node *corev1.Node, volume string) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, hasVolume(volume))
}

func hasVolume(volume string) func(corev1.AttachedVolume) bool {
	return func(v corev1.AttachedVolume) bool { return v.Name == ReportedName(volume) }
}

// VolumeOf returns the name of the volume of a VolumeAttachment.
func VolumeOf(va *storagev1.VolumeAttachment) string { return *va.Spec.Source.PersistentVolumeName }

func terminated(p *corev1.Pod) bool {
	return HasEnded(p) || !p.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Terminated == nil && c.State.Waiting == nil
		})
}

// volumeChoices returns the actions of the attach-detach controller. The controller attaches a volume to the node of a
// pod, and only to one node at a time. When no pod needs the volume, the controller removes the volume from the Node's
// status and then deletes the VolumeAttachment. The storage driver does the rest.
func (m Manager) volumeChoices(nodes map[string]*corev1.Node) (out []Choice) {
	if m.Volumes == nil {
		return nil
	}
	attachments := m.Server.Snapshot(attachmentKind)
	hasAttachment := map[string]bool{} // The keys are names of volumes.
	for _, o := range attachments {
		hasAttachment[VolumeOf(o.(*storagev1.VolumeAttachment))] = true
	}
	wanted := map[string]bool{}
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		node := nodes[p.Spec.NodeName]
		if p.Spec.NodeName == "" || terminated(p) {
			continue
		}
		for _, volume := range m.Volumes.NamesOf(p) {
			wanted[attachmentName(volume, p.Spec.NodeName)] = true
			if !hasAttachment[volume] && node != nil && node.Annotations[AnnotationManaged] == "true" {
				out = append(out, m.attach(volume, p.Spec.NodeName))
				hasAttachment[volume] = true
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
	return newChoice(func() error {
		va := &storagev1.VolumeAttachment{}
		va.Name = attachmentName(volume, node)
		va.Spec = storagev1.VolumeAttachmentSpec{Attacher: StorageDriver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}
		return client.IgnoreAlreadyExists(m.Server.Client(AttachDetach).Create(context.Background(), va))
	}, "attach-detach controller attaches volume %s to node %s", volume, node)
}

func (m Manager) attachedChoices(va *storagev1.VolumeAttachment, node *corev1.Node) (out []Choice) {
	volume, detachable := VolumeOf(va), m.detachable(va, node)
	reported := node != nil && ReportsAttached(node, volume)
	switch {
	case !detachable && !reported && node != nil:
		out = append(out, m.reportAttached(node, "attach-detach controller adds to node %s attached volume %s", volume,
			append(slices.Clone(node.Status.VolumesAttached), corev1.AttachedVolume{Name: ReportedName(volume)})))
	case detachable && reported:
		out = append(out, m.reportAttached(node, "attach-detach controller removes from node %s attached volume %s", volume,
			slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), hasVolume(volume))))
	case detachable:
		out = append(out, newChoice(func() error {
			return client.IgnoreNotFound(m.Server.Client(AttachDetach).Delete(context.Background(), va.DeepCopy()))
		}, "attach-detach controller detaches volume %s from node %s", volume, va.Spec.NodeName))
	}
	return out
}

func (m Manager) reportAttached(node *corev1.Node, format, volume string, all []corev1.AttachedVolume) Choice {
	changed := node.DeepCopy()
	changed.Status.VolumesAttached = all
	return newChoice(func() error { return m.patchStatus(AttachDetach, node, changed) }, format, node.Name, volume)
}

// detachable reports whether the controller may detach a volume now. No pod may need the volume, and the kubelet must
// have released the volume. The controller does not wait for the kubelet if the Node is out of service or has not been
// ready for forceDetachTimeout.
func (m Manager) detachable(va *storagev1.VolumeAttachment, node *corev1.Node) bool {
	state := m.Volumes.attached[va.Name]
	switch {
	case state.unwanted.IsZero():
		return false
	case !state.inUse, node != nil && OutOfService(node):
		return true
	}
	return !nodeReady(node) && !m.Now().Before(state.unwanted.Add(forceDetachTimeout))
}

func nodeReady(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	ready := ReadyCondition(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func (m Manager) observeVolumes(attachments []client.Object, nodes map[string]*corev1.Node, wanted map[string]bool) {
	next := make(map[string]attachedVolume, len(attachments))
	for _, o := range attachments {
		va := o.(*storagev1.VolumeAttachment)
		state := m.Volumes.attached[va.Name]
		state.node = va.Spec.NodeName
		if node := nodes[va.Spec.NodeName]; node != nil {
			state.inUse = InUse(node, VolumeOf(va))
		}
		if wanted[va.Name] {
			state.unwanted = time.Time{}
		} else if state.unwanted.IsZero() {
			state.unwanted = m.Now()
		}
		next[va.Name] = state
	}
	m.Volumes.attached = next
}

func (m Manager) volumesDue(nodes map[string]*corev1.Node, consider func(time.Time)) {
	if m.Volumes == nil {
		return
	}
	for _, state := range m.Volumes.attached {
		if state.inUse && !state.unwanted.IsZero() && !nodeReady(nodes[state.node]) {
			consider(state.unwanted.Add(forceDetachTimeout))
		}
	}
}
