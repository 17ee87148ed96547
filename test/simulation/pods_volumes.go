package simulation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// This file simulates volumes of pods. kube-controller-manager requests that a volume is attached to a node or
// detached, and the storage driver carries out the request. The kubelets mount the volumes.

const storageDriver = "storage-driver"

func volumeOf(p *corev1.Pod) string { return "volume-of-" + p.Name }

func (w *World) volumesOf(p *corev1.Pod) []string {
	if w.appOf(p).volume {
		return []string{volumeOf(p)}
	}
	return nil
}

func (w *World) attachments(f func(*storagev1.VolumeAttachment) bool) (found []*storagev1.VolumeAttachment) {
	for _, o := range w.target.Snapshot(attachmentKind) {
		if va := o.(*storagev1.VolumeAttachment); f(va) {
			found = append(found, va)
		}
	}
	return found
}

// mountable reports whether a pod's volumes can be mounted. The Node's status must list them as attached and in use.
func (w *World) mountable(p *corev1.Pod, node *corev1.Node) bool {
	return !slices.ContainsFunc(w.volumesOf(p), func(volume string) bool {
		return !controllermanager.ReportsAttached(node, volume) || !controllermanager.InUse(node, volume)
	})
}

func (w *World) storage() (out []choice) {
	if w.volumes == nil {
		return nil
	}
	for _, va := range w.attachments(func(*storagev1.VolumeAttachment) bool { return true }) {
		if do := w.drives(va); do != nil {
			out = append(out, choice{"storage driver handles " + va.Name, do})
		}
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		if next := w.mountedOn(node); w.kubeletOn(node.Name) != nil && !slices.Equal(next, node.Status.VolumesInUse) {
			out = append(out, choice{"kubelet reports its volumes", func() error {
				w.logf("kubelet of node %s reports volumes in use: %v", node.Name, next)
				changed := node.DeepCopy()
				changed.Status.VolumesInUse = next
				return client.IgnoreNotFound(w.kubelet().Status().Patch(context.Background(), changed, client.MergeFrom(node)))
			}})
		}
	}
	return out
}

// drives returns the storage driver's next step for a VolumeAttachment, or nil. If the VolumeAttachment is being
// deleted, the driver detaches the volume. Otherwise, the driver attaches the volume.
func (w *World) drives(va *storagev1.VolumeAttachment) func() error {
	c, changed := w.target.Client(storageDriver), va.DeepCopy()
	switch {
	case !va.DeletionTimestamp.IsZero():
		return func() error {
			w.logf("%s is detached from node %s", controllermanager.VolumeOf(va), va.Spec.NodeName)
			changed.Finalizers = nil
			return c.Patch(context.Background(), changed, client.MergeFrom(va))
		}
	case len(va.Finalizers) == 0:
		return func() error {
			changed.Finalizers = []string{"external-attacher/" + controllermanager.StorageDriver}
			return c.Patch(context.Background(), changed, client.MergeFrom(va))
		}
	case !va.Status.Attached:
		return func() error {
			w.logf("%s is attached to node %s", controllermanager.VolumeOf(va), va.Spec.NodeName)
			changed.Status.Attached = true
			return c.Status().Patch(context.Background(), changed, client.MergeFrom(va))
		}
	}
	return nil
}

// mountedOn returns the volumes that the kubelet of a node uses or will use: those of pods that have not ended, and
// those that are never unmounted.
func (w *World) mountedOn(node *corev1.Node) (all []corev1.UniqueVolumeName) {
	sticks := slices.ContainsFunc(w.apps, func(a app) bool { return a.staysAttached })
	if sticks {
		all = slices.Clone(node.Status.VolumesInUse)
	}
	for _, p := range w.podsWhere(func(p *corev1.Pod) bool { return p.Spec.NodeName == node.Name && !ended(p) }) {
		for _, volume := range w.volumesOf(p) {
			if name := controllermanager.ReportedName(volume); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func outOfService(node *corev1.Node) bool { return controllermanager.OutOfService(node) }

// mayPutOutOfService checks the out-of-service taint of a node. The taint forces the detachment of volumes, so the
// instance must be gone or stopped.
func (o *oracle) mayPutOutOfService(c apiserver.Change, node *corev1.Node) {
	before, _ := c.Old.(*corev1.Node)
	if c.Actor != Provider || !outOfService(node) || before == nil || outOfService(before) {
		return
	}
	if in := o.world.cloud.byID(node.Spec.ProviderID); in != nil && in.State != provider.StateStopped {
		o.breach("volumes", "node %s was marked as out of service while its instance %s runs", node.Name, in.ProviderID)
	}
}
