//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
)

// The pod of a DaemonSet and the volume of this pod disappear with the node, and must not block a rollout. Otherwise,
// each drain would wait up to five minutes for the volume. With revisionHistoryLimit 0, the old MachineSet is
// deleted.
//
// Rules: drain-order, volumes-detached-first.
func TestDaemonSetVolumesDoNotBlockRollout(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.RevisionHistoryLimit = ptr.To[int32](0)
		}
	})
	old := m.awaitRunning(1)[0]
	m.daemonWithVolume(old.Status.NodeRef.Name)
	m.rollTo(examples.LargeClass)
	m.awaitClasses("rolled out", map[string]int{examples.LargeClass: 1})
	env.Await(t, m.control, &v1beta1.MachineSetList{}, "no set but the new one",
		func(l *v1beta1.MachineSetList) (bool, string) {
			return len(l.Items) == 1, fmt.Sprintf("%d sets", len(l.Items))
		}, client.InNamespace(namespace))
	m.scale(0)
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

// daemonWithVolume creates a DaemonSet whose pods use an attached volume. daemonWithVolume returns when a pod runs on
// the node.
func (m *machinist) daemonWithVolume(node string) {
	m.t.Helper()
	const name, driver = "storage-agent", "csi.example.com"
	labels := map[string]string{"app": name}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for _, o := range []client.Object{
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver,
					VolumeHandle: name}},
			},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, VolumeName: name, StorageClassName: ptr.To(""),
				Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		},
		&storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(name)}},
		},
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						AutomountServiceAccountToken: ptr.To(false),
						Containers:                   []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
						Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
						}}},
					},
				},
			},
		},
	} {
		if err := m.target.Create(context.Background(), o); err != nil {
			m.t.Fatalf("create %T: %v", o, err)
		}
	}
	env.Await(m.t, m.target, &corev1.PodList{}, "the DaemonSet's pod on node "+
		node, func(l *corev1.PodList) (bool, string) {
		state := ""
		for i := range l.Items {
			state += fmt.Sprintf("%s on %q: %s %v\n", l.Items[i].Name, l.Items[i].Spec.NodeName, l.Items[i].Status.Phase,
				l.Items[i].Status.Conditions)
		}
		return len(l.Items) == 1 && l.Items[0].Spec.NodeName == node, state
	}, client.InNamespace(namespace), client.MatchingLabels(labels))
}
