package simulation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// Volumes of pods. One is attached when its pod starts. When the pod is gone, first the Node's report is withdrawn
// and then the VolumeAttachment, at nodes that do not report only if they are out of service or gone.

func volumeOf(p *corev1.Pod) string { return "volume-of-" + p.Name }

func (w *World) attachments(f func(*storagev1.VolumeAttachment) bool) (found []*storagev1.VolumeAttachment) {
	for _, o := range w.target.Snapshot(attachmentKind) {
		if va := o.(*storagev1.VolumeAttachment); f(va) {
			found = append(found, va)
		}
	}
	return found
}

// attachable reports whether nothing keeps the volume of a pod elsewhere.
func (w *World) attachable(p *corev1.Pod) bool {
	return len(w.attachments(func(va *storagev1.VolumeAttachment) bool {
		return *va.Spec.Source.PersistentVolumeName == volumeOf(p) && va.Spec.NodeName != p.Spec.NodeName
	})) == 0
}

func (w *World) attach(p *corev1.Pod) error {
	volume, attacher := volumeOf(p), w.target.Client("attacher")
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume + "-to-" + p.Spec.NodeName}}
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: "fake", NodeName: p.Spec.NodeName,
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}
	if len(w.attachments(func(known *storagev1.VolumeAttachment) bool { return known.Name == va.Name })) > 0 {
		return nil
	}
	if err := attacher.Create(context.Background(), va); err != nil {
		return err
	}
	node := w.node(p.Spec.NodeName)
	changed := node.DeepCopy()
	changed.Status.VolumesAttached = append(changed.Status.VolumesAttached, corev1.AttachedVolume{Name: reported(volume)})
	return attacher.Status().Patch(context.Background(), changed, client.MergeFrom(node))
}

func reported(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/fake^" + volume)
}

// detachments returns which volumes may be detached a bit more now.
func (w *World) detachments() (out []choice) {
	for _, va := range w.attachments(func(va *storagev1.VolumeAttachment) bool { return w.detachable(va) }) {
		volume, node, attacher := *va.Spec.Source.PersistentVolumeName, w.node(va.Spec.NodeName), w.target.Client("attacher")
		isIt := func(v corev1.AttachedVolume) bool { return v.Name == reported(volume) }
		if node != nil && slices.ContainsFunc(node.Status.VolumesAttached, isIt) {
			out = append(out, choice{"volume is no longer reported", func() error {
				w.logf("node %s no longer reports %s", node.Name, volume)
				changed := node.DeepCopy()
				changed.Status.VolumesAttached = slices.DeleteFunc(changed.Status.VolumesAttached, isIt)
				return attacher.Status().Patch(context.Background(), changed, client.MergeFrom(node))
			}})
			continue
		}
		out = append(out, choice{"volume is detached", func() error {
			w.logf("%s is detached from node %s", volume, va.Spec.NodeName)
			return attacher.Delete(context.Background(), va.DeepCopy())
		}})
	}
	return out
}

func (w *World) detachable(va *storagev1.VolumeAttachment) bool {
	node := w.node(va.Spec.NodeName)
	if node == nil {
		return true
	}
	used := w.podsWhere(func(p *corev1.Pod) bool {
		return volumeOf(p) == *va.Spec.Source.PersistentVolumeName && p.Spec.NodeName == node.Name && !ended(p)
	})
	sticks := slices.ContainsFunc(w.apps, func(a app) bool { return a.sticks })
	return len(used) == 0 && !sticks && (w.kubeletOn(node.Name) != nil || outOfService(node))
}

func outOfService(node *corev1.Node) bool { return controllermanager.OutOfService(node) }

// mayPutOutOfService judges that a node is said to be dead: its volumes are torn from it, which must not be in use.
func (o *oracle) mayPutOutOfService(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	if c.Actor != Provider || !outOfService(node) || before == nil || outOfService(before) {
		return
	}
	if in := o.world.cloud.byID(node.Spec.ProviderID); in != nil {
		o.breach("volumes", "node %s was put out of service, and its instance %s is there", node.Name, in.ProviderID)
	}
}
