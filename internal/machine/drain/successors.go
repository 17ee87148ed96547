package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// schedulerLag is the maximum delay of the scheduler's cache. During this time after a node is cordoned, the scheduler
// may still assign pods to the node even if they do not tolerate the cordon.
const schedulerLag = 10 * time.Second

// wouldReturn reports whether the eviction of a pod would be useless. It is useless if the pod is itself the successor
// of an evicted pod, and its controller would create another successor on the same node. The controller does so if the
// pod tolerates the cordon, or if the pod template names the node.
func (p *planner) wouldReturn(pod *corev1.Pod) bool {
	after, successor := p.Successors[pod.UID]
	return successor && (toleratesCordon(pod) || after >= schedulerLag)
}

// successorTracker finds the pods of a node that are successors of evicted pods. The zero value is ready to use.
type successorTracker struct {
	// seen contains the pods that were found on the node before any pod of their controller was evicted.
	seen map[types.UID]bool
	// evicted contains the time at which the first pod of a controller was evicted, by the UID of the controller.
	evicted map[types.UID]time.Time
	// successors contains the pods that appeared after another pod of their controller was evicted. The value is the time
	// between that eviction and the check that found the pod.
	successors map[types.UID]time.Duration
}

// observe records the current pods of the node.
func (r *successorTracker) observe(pods []corev1.Pod, now time.Time) {
	if r.seen == nil {
		r.seen, r.evicted = map[types.UID]bool{}, map[types.UID]time.Time{}
		r.successors = map[types.UID]time.Duration{}
	}
	for i := range pods {
		pod := &pods[i]
		if _, known := r.successors[pod.UID]; known || r.seen[pod.UID] {
			continue
		}
		if at, evicted := r.evicted[controllerOf(pod)]; evicted {
			r.successors[pod.UID] = now.Sub(at)
		} else {
			r.seen[pod.UID] = true
		}
	}
}

// recordEviction records that a pod was evicted or deleted.
func (r *successorTracker) recordEviction(pod *corev1.Pod, now time.Time) {
	owner := controllerOf(pod)
	if _, known := r.evicted[owner]; !known && owner != "" {
		r.evicted[owner] = now
	}
}

// controllerOf returns the UID of the pod's controller, or an empty UID if it has none.
func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}
