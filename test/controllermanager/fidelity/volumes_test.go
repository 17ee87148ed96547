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

// volume is the PersistentVolume of a claim.
func (s *scene) volume(claim string) string { return s.name(claim) }

// volumesOf names the volumes of a story's pod.
func volumesOf(p *corev1.Pod) (all []string) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, p.Namespace+"-"+v.PersistentVolumeClaim.ClaimName)
		}
	}
	return all
}

// provided makes a volume and its claim, of which the double knows no more than the names.
func provided(claim string) sentence {
	return sentence{what: "provide " + claim, do: func(ctx context.Context, s *scene) error {
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

// using returns a pod on a node that has the volume of a claim.
func using(name, node, claim string) *corev1.Pod {
	p := pod(name)
	p.Spec.NodeName = node
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func managed(n *corev1.Node) {
	n.Annotations = map[string]string{controllermanager.AnnotationManaged: "true"}
}

func outOfService(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
		Effect: corev1.TaintEffectNoExecute})
}

// running is a pod whose container runs, stopped one whose container has ended.
func running(p *corev1.Pod) {
	ready(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func stopped(p *corev1.Pod) {
	ended(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}
}

// inUse has a kubelet report the volumes that it may have mounted.
func inUse(name string, claims ...string) sentence {
	return sentence{what: fmt.Sprint("the kubelet of ", name, " has in use ", claims),
		do: func(ctx context.Context, s *scene) error {
			return report(node(name), func(n *corev1.Node) {
				n.Status.VolumesInUse = nil
				for _, claim := range claims {
					n.Status.VolumesInUse = append(n.Status.VolumesInUse, controllermanager.Reported(s.volume(claim)))
				}
			}).do(ctx, s)
		}}
}

// attachment returns that of a claim's volume to a node.
func (s *scene) attachment(ctx context.Context, claim, node string) (*storagev1.VolumeAttachment, error) {
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
	return nil, fmt.Errorf("nothing attaches %s to %s", claim, node)
}

// attached is the storage driver's: the volume of a claim is attached to a node.
func attached(claim, node string) sentence {
	return sentence{what: "the driver attaches " + claim + " to " + node, do: func(ctx context.Context, s *scene) error {
		va, err := s.attachment(ctx, claim, node)
		if err != nil {
			return err
		}
		before := va.DeepCopy()
		va.Finalizers = []string{protected}
		if err := s.Patch(ctx, va, client.MergeFrom(before)); err != nil {
			return err
		}
		before = va.DeepCopy()
		va.Status.Attached = true
		return s.Status().Patch(ctx, va, client.MergeFrom(before))
	}}
}

func detached(claim, node string) sentence {
	return sentence{what: "the driver detaches " + claim + " from " + node, do: func(ctx context.Context, s *scene) error {
		va, err := s.attachment(ctx, claim, node)
		if err != nil {
			return err
		}
		before := va.DeepCopy()
		va.Finalizers = nil
		return s.Patch(ctx, va, client.MergeFrom(before))
	}}
}

// mounts is how a pod with a volume comes to run.
func mounts(p *corev1.Pod, node, claim string) []sentence {
	return []sentence{provided(claim), create(p), inUse(node, claim), attached(claim, node), report(p, running)}
}

func hosts(name string) []sentence {
	return []sentence{joins(name), change(node(name), managed)}
}

func storyOf(parts ...any) (story []sentence) {
	for _, part := range parts {
		switch part := part.(type) {
		case sentence:
			story = append(story, part)
		case []sentence:
			story = append(story, part...)
		}
	}
	return story
}

// A volume is attached when its pod is bound, and detached when the pod has ended and the kubelet no longer has it in
// use: first it is no longer reported, then the attachment is deleted, and the driver takes its time.
func TestAVolumeComesAndGoesWithItsPod(t *testing.T) {
	p := using("db", "n", "data")
	compare(t, storyOf(hosts("n"), mounts(p, "n", "data"), remove(p), report(p, stopped),
		remove(p, client.GracePeriodSeconds(0)), inUse("n"), detached("data", "n"))...)
}

// A pod that was deleted before anything of it ran needs no volume.
func TestAVolumeOfAPodThatNeverRan(t *testing.T) {
	p := using("db", "n", "data")
	compare(t, storyOf(hosts("n"), provided("data"), create(p), remove(p), attached("data", "n"), inUse("n"),
		detached("data", "n"))...)
}

// A volume is attached to one node at a time: another one waits until the driver has detached it.
func TestAVolumeIsAttachedToOneNode(t *testing.T) {
	first, second := using("first", "n", "data"), using("second", "m", "data")
	compare(t, storyOf(hosts("n"), hosts("m"), mounts(first, "n", "data"), create(second), inUse("m", "data"),
		report(first, stopped), inUse("n"), remove(first, client.GracePeriodSeconds(0)), detached("data", "n"),
		attached("data", "m"), report(second, running))...)
}

// Where a kubelet does not let volumes be attached for it, nobody attaches one.
func TestVolumesOfAKubeletThatAttachesItself(t *testing.T) {
	p, other := using("db", "n", "one"), using("other", "m", "two")
	compare(t, storyOf(joins("n"), provided("one"), create(p), report(p, running), hosts("m"), mounts(other, "m", "two"))...)
}

// A kubelet that is silent keeps its volumes, also when their pods are gone, until its node is out of service.
func TestVolumesOfANodeOutOfService(t *testing.T) {
	first, second := using("first", "n", "one"), using("second", "n", "two")
	compare(t, storyOf(hosts("n"), mounts(first, "n", "one"), mounts(second, "n", "two"), inUse("n", "one", "two"),
		lives("n", false), remove(first, client.GracePeriodSeconds(0)), remove(second), change(node("n"), outOfService),
		detached("one", "n"), detached("two", "n"))...)
}

// The taint also tears volumes from a node that is ready, once their pods are gone.
func TestVolumesOfAReadyNodeOutOfService(t *testing.T) {
	p := using("db", "n", "data")
	compare(t, storyOf(hosts("n"), mounts(p, "n", "data"), change(node("n"), outOfService),
		remove(p, client.GracePeriodSeconds(0)), detached("data", "n"))...)
}

// A volume that its kubelet had in use stays attached when the Node is deleted; one that it had not is detached.
func TestVolumesOfANodeThatIsDeleted(t *testing.T) {
	used, unused := using("used", "n", "one"), using("unused", "m", "two")
	compare(t, storyOf(hosts("n"), hosts("m"), mounts(used, "n", "one"), mounts(unused, "m", "two"),
		remove(used, client.GracePeriodSeconds(0)), remove(node("n")), inUse("m"),
		remove(unused, client.GracePeriodSeconds(0)), remove(node("m")), detached("two", "m"))...)
}
