package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// schedulerLag is the maximum delay of the scheduler's cache. During this time after a cordon, the scheduler may still
// assign pods to the node.
const schedulerLag = 10 * time.Second

// wouldReturn reports whether the eviction of a pod would be useless, because its controller would create another pod
// on the same node. A new pod can run on the cordoned node if it tolerates the cordon, or if its pod template contains
// the name of the node.
func (p *planner) wouldReturn(pod *corev1.Pod) bool {
	after, successor := p.Successors[pod.UID]
	return successor && (toleratesCordon(pod) || after >= schedulerLag)
}

// successorTracker finds the pods of a node that are successors of evicted pods. The zero value is ready to use.
type successorTracker struct {
	// seenPods contains the pods that were found on the node before any pod of their controller was evicted.
	seenPods map[types.UID]bool
	// evictionTimes contains the time of the first eviction of a controller's pod, by the UID of the controller.
	evictionTimes map[types.UID]time.Time
	// successors contains the pods that appeared after another pod of their controller was evicted. The value is the time
	// between that eviction and the check that found the pod.
	successors map[types.UID]time.Duration
}

func (r *successorTracker) observe(pods []corev1.Pod, now time.Time) {
	if r.seenPods == nil {
		r.seenPods, r.evictionTimes = map[types.UID]bool{}, map[types.UID]time.Time{}
		r.successors = map[types.UID]time.Duration{}
	}
	for i := range pods {
		pod := &pods[i]
		if _, known := r.successors[pod.UID]; known || r.seenPods[pod.UID] {
			continue
		}
		if at, evicted := r.evictionTimes[controllerOf(pod)]; evicted {
			r.successors[pod.UID] = now.Sub(at)
		} else {
			r.seenPods[pod.UID] = true
		}
	}
}

func (r *successorTracker) recordEviction(pod *corev1.Pod, now time.Time) {
	owner := controllerOf(pod)
	if _, known := r.evictionTimes[owner]; !known && owner != "" {
		r.evictionTimes[owner] = now
	}
}

func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}
