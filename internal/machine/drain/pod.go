package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// defaultGrace is the default of the API server for pods without a termination grace period.
	defaultGrace = 30 * time.Second

	// minGrace is the shortest grace period that a pod gets. With 0, the API server would remove the pod while its
	// containers run.
	minGrace = time.Second

	// maxGrace limits grace periods to what a Duration can hold.
	maxGrace = 365 * 24 * time.Hour

	// criticalPriority is the lowest of the priorities that are reserved for the system.
	criticalPriority = 2_000_000_000
)

// isMirror reports whether a pod is the mirror pod of a static pod. The kubelet creates it again whenever it is
// deleted.
func isMirror(pod *corev1.Pod) bool {
	_, found := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return found
}

// isFinished reports whether all containers of a pod have ended permanently.
func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isTerminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero()
}

// isCritical reports whether a pod belongs to the system, so that workloads may need it until they are gone.
func isCritical(pod *corev1.Pod) bool {
	switch pod.Spec.PriorityClassName {
	case "system-cluster-critical", "system-node-critical":
		return true
	}
	return priority(pod) >= criticalPriority
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// daemonSetOf returns the DaemonSet that controls the pod, or nil if none does. It does not check the API group,
// because DaemonSets of other API groups create a new pod on a cordoned node too as soon as the old one is gone.
func daemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" {
		return owner
	}
	return nil
}

// grace returns the grace period of the pod, at least minGrace.
func grace(pod *corev1.Pod) time.Duration {
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		return defaultGrace
	}
	return boundedGrace(*pod.Spec.TerminationGracePeriodSeconds)
}

func boundedGrace(seconds int64) time.Duration {
	if seconds > int64(maxGrace/time.Second) {
		return maxGrace
	}
	return max(time.Duration(seconds)*time.Second, minGrace)
}
