package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// defaultGrace is what the API server would have written into a pod without a termination grace period.
	defaultGrace = 30 * time.Second

	// minGrace is the least that a pod is given: with 0 the API server would remove the pod while its containers run.
	minGrace = time.Second

	// maxGrace keeps hostile grace periods within what a Duration can hold.
	maxGrace = 365 * 24 * time.Hour

	// criticalPriority is where the priorities reserved for the system begin.
	criticalPriority = 2_000_000_000
)

// isMirror tells the image of a static pod: the kubelet makes it anew as often as it is deleted.
func isMirror(pod *corev1.Pod) bool {
	_, found := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return found
}

// isFinished tells a pod whose containers have all ended for good.
func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isTerminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero()
}

// isCritical tells a pod of the system, which workloads may need until they are gone.
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

// daemonSetOf returns the DaemonSet that puts the pod onto its node, nil if none does. The group is not asked for:
// also the DaemonSets of others put a new pod onto a cordoned node as soon as the old one is gone.
func daemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "DaemonSet" {
		return owner
	}
	return nil
}

// grace returns the time that the pod asks for between its termination signal and its end, at least minGrace.
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
