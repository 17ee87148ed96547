package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// defaultGrace is the default of the API server for pods without a termination grace period.
	defaultGrace = 30 * time.Second

	// minGrace is the shortest grace period that the controller requests for a pod. With 0, the API server would remove
	// the pod while its containers still run.
	minGrace = time.Second

	// maxGrace is the maximum grace period, because time.Duration cannot represent much longer periods.
	maxGrace = 365 * 24 * time.Hour

	// criticalPriority is the lowest priority of system pods.
	criticalPriority = 2_000_000_000
)

// isMirror reports whether a pod is the mirror pod of a static pod. The kubelet creates a deleted mirror pod again.
func isMirror(pod *corev1.Pod) bool {
	_, found := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return found
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isTerminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero()
}

// isCritical reports whether a pod is a system pod. System pods are evicted later, because workload pods may need them
// until the workload pods have ended.
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

// daemonSetOf returns the DaemonSet that controls the pod, or nil if none does. daemonSetOf ignores the API group,
// because DaemonSets of other API groups also create a new pod on a cordoned node.
func daemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" {
		return owner
	}
	return nil
}

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
