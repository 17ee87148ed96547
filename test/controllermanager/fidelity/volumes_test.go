package fidelity

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/controllermanager"
)

func (s *cluster) volume(claim string) string { return s.name(claim) }

func volumesOf(p *corev1.Pod) (all []string) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, p.Namespace+"-"+v.PersistentVolumeClaim.ClaimName)
		}
	}
	return all
}

func createVolume(claim string) step {
	return step{name: "create volume " + claim, do: func(ctx context.Context, s *cluster) error {
		if s.double != nil {
			return nil
		}
		modes, size := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse("1Gi")}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.volume(claim)}}
		pv.Spec.AccessModes, pv.Spec.Capacity = modes, size
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: s.namespace, Name: claim}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: controllermanager.StorageDriver, VolumeHandle: pv.Name}
		if err := s.Create(ctx, pv); err != nil {
			return err
		}
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: claim}}
		pvc.Spec.AccessModes, pvc.Spec.VolumeName, pvc.Spec.StorageClassName = modes, pv.Name, ptr.To("")
		pvc.Spec.Resources.Requests = size
		return s.Create(ctx, pvc)
	}}
}

func podWithVolume(name, node, claim string) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func setManaged(n *corev1.Node) {
	n.Annotations = map[string]string{controllermanager.AnnotationManaged: "true"}
}

func addOutOfServiceTaint(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
		Effect: corev1.TaintEffectNoExecute})
}

func setRunning(p *corev1.Pod) {
	setReady(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func setStopped(p *corev1.Pod) {
	setSucceeded(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}
}

// reportInUse is a step in which a kubelet reports the volumes that it may have mounted.
func reportInUse(name string, claims ...string) step {
	return step{name: fmt.Sprint("the kubelet of ", name, " reports volumes in use: ", claims),
		do: func(ctx context.Context, s *cluster) error {
			return changeStatus(node(name), func(n *corev1.Node) {
				n.Status.VolumesInUse = nil
				for _, claim := range claims {
					n.Status.VolumesInUse = append(n.Status.VolumesInUse, controllermanager.ReportedName(s.volume(claim)))
				}
			}).do(ctx, s)
		}}
}

func (s *cluster) attachment(ctx context.Context, claim, node string) (*storagev1.VolumeAttachment, error) {
	list := &storagev1.VolumeAttachmentList{}
	if err := s.List(ctx, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		va := &list.Items[i]
		if controllermanager.VolumeOf(va) == s.volume(claim) && va.Spec.NodeName == s.name(node) {
			return va, nil
		}
	}
	return nil, fmt.Errorf("found no VolumeAttachment for claim %s and node %s", claim, node)
}

func attachVolume(claim, node string) step {
	return step{name: "the driver attaches " + claim + " to " + node, do: func(ctx context.Context, s *cluster) error {
		va, err := s.attachment(ctx, claim, node)
		if err != nil {
			return err
		}
		before := va.DeepCopy()
		va.Finalizers = []string{finalizer}
		if err := s.Patch(ctx, va, client.MergeFrom(before)); err != nil {
			return err
		}
		before = va.DeepCopy()
		va.Status.Attached = true
		return s.Status().Patch(ctx, va, client.MergeFrom(before))
	}}
}

func detachVolume(claim, node string) step {
	return step{name: "the driver detaches " + claim + " from " + node, do: func(ctx context.Context, s *cluster) error {
		va, err := s.attachment(ctx, claim, node)
		if err != nil {
			return err
		}
		before := va.DeepCopy()
		va.Finalizers = nil
		return s.Patch(ctx, va, client.MergeFrom(before))
	}}
}

func runPodWithVolume(p *corev1.Pod, node, claim string) []step {
	return []step{createVolume(claim), create(p), reportInUse(node, claim), attachVolume(claim, node), changeStatus(p,
		setRunning)}
}

func joinNodeWithVolumes(name string) []step {
	return []step{joinNode(name), change(node(name), setManaged)}
}

func steps(parts ...any) (scenario []step) {
	for _, part := range parts {
		switch part := part.(type) {
		case step:
			scenario = append(scenario, part)
		case []step:
			scenario = append(scenario, part...)
		}
	}
	return scenario
}

// The controller attaches a volume when a pod that uses it is bound to a node. After the pod has ended and the
// kubelet has released the volume, the controller removes the volume from the Node's status and deletes the
// attachment. The driver may take longer.
func TestVolumeFollowsPod(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(p, "n", "data"), remove(p), changeStatus(p, setStopped),
		remove(p, client.GracePeriodSeconds(0)), reportInUse("n"), detachVolume("data", "n"))...)
}

// A pod that is deleted before its containers start no longer needs its volume.
func TestVolumeOfPodThatNeverRan(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), createVolume("data"), create(p), remove(p), attachVolume("data", "n"),
		reportInUse("n"), detachVolume("data", "n"))...)
}

// A second node gets the volume only after the driver has detached it from the first node.
func TestVolumeIsAttachedToOneNode(t *testing.T) {
	first, second := podWithVolume("first", "n", "data"), podWithVolume("second", "m", "data")
	compare(t, steps(joinNodeWithVolumes("n"), joinNodeWithVolumes("m"), runPodWithVolume(first, "n", "data"),
		create(second),
		reportInUse("m", "data"), changeStatus(first, setStopped), reportInUse("n"),
		remove(first, client.GracePeriodSeconds(0)),
		detachVolume("data", "n"), attachVolume("data", "m"), changeStatus(second, setRunning))...)
}

// The controller does not attach volumes to a node without the annotation controller-managed-attach-detach.
func TestVolumesOfUnmanagedNode(t *testing.T) {
	p, other := podWithVolume("db", "n", "one"), podWithVolume("other", "m", "two")
	compare(t, steps(joinNode("n"), createVolume("one"), create(p), changeStatus(p, setRunning), joinNodeWithVolumes("m"),
		runPodWithVolume(other, "m", "two"))...)
}

// The volumes of a silent node remain attached after the deletion of its pods, until the node gets the out-of-service
// taint.
func TestVolumesOfOutOfServiceNode(t *testing.T) {
	first, second := podWithVolume("first", "n", "one"), podWithVolume("second", "n", "two")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(first, "n", "one"), runPodWithVolume(second, "n", "two"),
		reportInUse("n", "one", "two"), setAlive("n", false), remove(first, client.GracePeriodSeconds(0)), remove(second),
		change(node("n"), addOutOfServiceTaint), detachVolume("one", "n"), detachVolume("two", "n"))...)
}

// The out-of-service taint also detaches the volumes of deleted pods from a ready node.
func TestVolumesOfReadyOutOfServiceNode(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(p, "n", "data"), change(node("n"), addOutOfServiceTaint),
		remove(p, client.GracePeriodSeconds(0)), detachVolume("data", "n"))...)
}

// After the deletion of a Node, a volume that the kubelet reported as in use remains attached. Other volumes are
// detached.
func TestVolumesOfDeletedNode(t *testing.T) {
	used, unused := podWithVolume("used", "n", "one"), podWithVolume("unused", "m", "two")
	compare(t, steps(joinNodeWithVolumes("n"), joinNodeWithVolumes("m"), runPodWithVolume(used, "n", "one"),
		runPodWithVolume(unused, "m", "two"), remove(used, client.GracePeriodSeconds(0)), remove(node("n")), reportInUse("m"),
		remove(unused, client.GracePeriodSeconds(0)), remove(node("m")), detachVolume("two", "m"))...)
}
