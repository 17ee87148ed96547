package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// schedulerLag is how long after a node was cordoned the scheduler may still assign a pod to it that does not tolerate
// the cordon, because its cache lags behind.
const schedulerLag = 10 * time.Second

// wouldReturn reports whether a pod is the successor of one that was evicted from this node, and would have a successor
// on this node too if it were evicted. This is so if the pod tolerates the cordon, or if its controller names the node.
func (p *planner) wouldReturn(pod *corev1.Pod) bool {
	after, successor := p.Successors[pod.UID]
	return successor && (toleratesCordon(pod) || after >= schedulerLag)
}

// successorTracker finds the pods of a node that are successors of evicted pods. The zero value is ready to use.
type successorTracker struct {
	// seen are the pods that were on the node before a pod of their controller was evicted.
	seen map[types.UID]bool
	// evicted is when the first pod of a controller was evicted, by the controller's UID.
	evicted map[types.UID]time.Time
	// successors are the other pods of these controllers, and how long after the eviction each was first seen.
	successors map[types.UID]time.Duration
}

// observe records the pods that are on the node now.
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
