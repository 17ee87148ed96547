package drain

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noon is a fixed time, at which drains begin in the tests without an API server.
var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

type podOption func(*corev1.Pod)

// aPod returns a running pod. The argument has the form "namespace/name", and the pod's UID equals its name.
func aPod(name string, options ...podOption) corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, option := range options {
		option(&pod)
	}
	return pod
}

func withGrace(seconds int64) podOption {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func withPriority(value int32) podOption {
	return func(p *corev1.Pod) { p.Spec.Priority = &value }
}

func withPriorityClass(name string) podOption {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
}

func inPhase(phase corev1.PodPhase) podOption {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func ownedBy(apiVersion, kind, name string) podOption {
	controller := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: &controller,
		})
	}
}

func ofDaemonSet(name string) podOption { return ownedBy("apps/v1", "DaemonSet", name) }

func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
}

func terminating(since time.Time, grace int64) podOption {
	return func(p *corev1.Pod) {
		ends := metav1.NewTime(since.Add(time.Duration(grace) * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &ends, &grace
	}
}

func withClaim(name string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}
