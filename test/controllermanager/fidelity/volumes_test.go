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

// volume returns the name of the PersistentVolume of a claim.
func (s *cluster) volume(claim string) string { return s.name(claim) }

// volumesOf returns the names of the volumes of a pod.
func volumesOf(p *corev1.Pod) (all []string) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, p.Namespace+"-"+v.PersistentVolumeClaim.ClaimName)
		}
	}
	return all
}

// createVolume creates a volume and its claim. The double needs only their names.
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

// podWithVolume returns a pod on a node with the volume of a claim.
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

// setRunning sets the status of a pod whose container is running.
func setRunning(p *corev1.Pod) {
	setReady(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// setStopped sets the status of a pod whose container has ended.
func setStopped(p *corev1.Pod) {
	setSucceeded(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}
}

// reportInUse returns a step in which a kubelet reports the volumes that it may have mounted.
func reportInUse(name string, claims ...string) step {
	return step{name: fmt.Sprint("the kubelet of ", name, " reports volumes in use: ", claims),
		do: func(ctx context.Context, s *cluster) error {
			return changeStatus(node(name), func(n *corev1.Node) {
				n.Status.VolumesInUse = nil
				for _, claim := range claims {
					n.Status.VolumesInUse = append(n.Status.VolumesInUse, controllermanager.Reported(s.volume(claim)))
				}
			}).do(ctx, s)
		}}
}

// attachment returns the VolumeAttachment of a claim and a node.
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

// attachVolume attaches the volume of a claim to a node, as the storage driver does.
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

// detachVolume detaches the volume of a claim from a node, as the storage driver does.
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

// runPodWithVolume creates a pod with a volume and sets the pod to running.
func runPodWithVolume(p *corev1.Pod, node, claim string) []step {
	return []step{createVolume(claim), create(p), reportInUse(node, claim), attachVolume(claim, node), changeStatus(p,
		setRunning)}
}

// joinNodeWithVolumes creates a ready node for which the controller attaches volumes.
func joinNodeWithVolumes(name string) []step {
	return []step{joinNode(name), change(node(name), setManaged)}
}

// steps concatenates steps and lists of steps.
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

// The controller attaches a volume when a pod that uses it is bound to a node. When the pod has ended and the kubelet
// no longer uses the volume, the controller removes it from the status of the Node and deletes the attachment. The
// driver may take longer.
func TestVolumeFollowsPod(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(p, "n", "data"), remove(p), changeStatus(p, setStopped),
		remove(p, client.GracePeriodSeconds(0)), reportInUse("n"), detachVolume("data", "n"))...)
}

// If a pod is deleted before its containers start, its volume is no longer needed.
func TestVolumeOfPodThatNeverRan(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), createVolume("data"), create(p), remove(p), attachVolume("data", "n"),
		reportInUse("n"), detachVolume("data", "n"))...)
}

// A volume is attached to a second node only after the driver has detached it from the first node.
func TestVolumeIsAttachedToOneNode(t *testing.T) {
	first, second := podWithVolume("first", "n", "data"), podWithVolume("second", "m", "data")
	compare(t, steps(joinNodeWithVolumes("n"), joinNodeWithVolumes("m"), runPodWithVolume(first, "n", "data"),
		create(second),
		reportInUse("m", "data"), changeStatus(first, setStopped), reportInUse("n"),
		remove(first, client.GracePeriodSeconds(0)),
		detachVolume("data", "n"), attachVolume("data", "m"), changeStatus(second, setRunning))...)
}

// If a node lacks the annotation controller-managed-attach-detach, the controller does not attach volumes to the node.
func TestVolumesOfUnmanagedNode(t *testing.T) {
	p, other := podWithVolume("db", "n", "one"), podWithVolume("other", "m", "two")
	compare(t, steps(joinNode("n"), createVolume("one"), create(p), changeStatus(p, setRunning), joinNodeWithVolumes("m"),
		runPodWithVolume(other, "m", "two"))...)
}

// After the pods of a silent node are deleted, their volumes remain attached until the node has the out-of-service
// taint.
func TestVolumesOfOutOfServiceNode(t *testing.T) {
	first, second := podWithVolume("first", "n", "one"), podWithVolume("second", "n", "two")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(first, "n", "one"), runPodWithVolume(second, "n", "two"),
		reportInUse("n", "one", "two"), setAlive("n", false), remove(first, client.GracePeriodSeconds(0)), remove(second),
		change(node("n"), addOutOfServiceTaint), detachVolume("one", "n"), detachVolume("two", "n"))...)
}

// If a node has the out-of-service taint, volumes are detached after the deletion of their pods, even if the node is
// ready.
func TestVolumesOfReadyOutOfServiceNode(t *testing.T) {
	p := podWithVolume("db", "n", "data")
	compare(t, steps(joinNodeWithVolumes("n"), runPodWithVolume(p, "n", "data"), change(node("n"), addOutOfServiceTaint),
		remove(p, client.GracePeriodSeconds(0)), detachVolume("data", "n"))...)
}

// When a Node is deleted, a volume that the kubelet reported as in use remains attached. Other volumes are detached.
func TestVolumesOfDeletedNode(t *testing.T) {
	used, unused := podWithVolume("used", "n", "one"), podWithVolume("unused", "m", "two")
	compare(t, steps(joinNodeWithVolumes("n"), joinNodeWithVolumes("m"), runPodWithVolume(used, "n", "one"),
		runPodWithVolume(unused, "m", "two"), remove(used, client.GracePeriodSeconds(0)), remove(node("n")), reportInUse("m"),
		remove(unused, client.GracePeriodSeconds(0)), remove(node("m")), detachVolume("two", "m"))...)
}
