package drain_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/machine/drain"
)

// TestKubernetesDetachesVolumesOfOutOfServiceNode checks the behavior of Kubernetes on which OutOfService relies.
// Kubernetes removes the pod, although no kubelet confirms that the pod has ended. Kubernetes also detaches its volume,
// although the Node still reports that the volume is in use.
//
// Rule: out-of-service-taint.
func TestKubernetesDetachesVolumesOfOutOfServiceNode(t *testing.T) {
	c := newCluster(t)
	ctx := context.Background()
	node := &corev1.Node{}
	node.Name = c.namespace + "-dead"
	node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	c.create(node)
	volume := corev1.UniqueVolumeName("kubernetes.io/csi/test.example.com^" + c.namespace)
	c.setNodeStatus(node, func(s *corev1.NodeStatus) {
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		s.VolumesInUse = []corev1.UniqueVolumeName{volume} // the kubelet's last report
	})
	pod := c.pod(node, "db-0", blocked, c.claim("db"))
	running := pod.DeepCopy()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if err := c.Status().Patch(ctx, pod, client.MergeFrom(running)); err != nil {
		t.Fatal(err)
	}

	// Set the status of the VolumeAttachment, as the attacher of a CSI driver does.
	var attachment *storagev1.VolumeAttachment
	await(c, "the volume to be asked for", &storagev1.VolumeAttachmentList{},
		func(l *storagev1.VolumeAttachmentList) (bool, string) {
			attachment = attachmentTo(node, l)
			return attachment != nil, "no attachment"
		})
	before := attachment.DeepCopy()
	attachment.Status.Attached = true
	if err := c.Status().Patch(ctx, attachment, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	await(c, "the volume to be reported", &corev1.NodeList{}, func(l *corev1.NodeList) (bool, string) {
		n := nodeOf(node, l)
		return n != nil && len(n.Status.VolumesAttached) == 1, "not attached"
	})

	if err := c.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	now := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(node), now); err != nil {
		t.Fatal(err)
	}
	if _, err := drain.OutOfService(ctx, c, now, time.Now()); err != nil {
		t.Fatal(err)
	}
	await(c, "the volume to be detached", &storagev1.VolumeAttachmentList{},
		func(l *storagev1.VolumeAttachmentList) (bool, string) {
			return attachmentTo(node, l) == nil, "attached"
		})
	await(c, "the report to be withdrawn", &corev1.NodeList{}, func(l *corev1.NodeList) (bool, string) {
		n := nodeOf(node, l)
		return n != nil && len(n.Status.VolumesAttached) == 0, "reported"
	})
	if p := c.podNow(pod); p != nil {
		t.Errorf("the volume was detached although its pod still exists: %+v", p.Status)
	}
}

func (c *cluster) claim(name string) func(*corev1.Pod) {
	c.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	none := ""
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "test.example.com", VolumeHandle: c.namespace,
		}},
		ClaimRef: &corev1.ObjectReference{Namespace: c.namespace, Name: name},
	}}
	pv.Name = c.namespace + "-" + name
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: c.meta(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &none, VolumeName: pv.Name,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	c.create(pv)
	c.create(claim)
	await(c, "the claim to be bound", &corev1.PersistentVolumeClaimList{},
		func(l *corev1.PersistentVolumeClaimList) (bool, string) {
			return len(l.Items) == 1 && l.Items[0].Status.Phase == corev1.ClaimBound, "not bound"
		})
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

func (c *cluster) setNodeStatus(node *corev1.Node, change func(*corev1.NodeStatus)) {
	c.Helper()
	before := node.DeepCopy()
	change(&node.Status)
	if err := c.Status().Patch(context.Background(), node, client.MergeFrom(before)); err != nil {
		c.Fatal(err)
	}
}

func attachmentTo(node *corev1.Node, l *storagev1.VolumeAttachmentList) *storagev1.VolumeAttachment {
	for i := range l.Items {
		if l.Items[i].Spec.NodeName == node.Name {
			return &l.Items[i]
		}
	}
	return nil
}

func nodeOf(node *corev1.Node, l *corev1.NodeList) *corev1.Node {
	for i := range l.Items {
		if l.Items[i].Name == node.Name {
			return &l.Items[i]
		}
	}
	return nil
}
