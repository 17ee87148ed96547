package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// turn is the order in which the pods of a node are evicted.
type turn int

const (
	workload turn = iota
	critical
	// tolerating pods may run on a cordoned node. Storage operators rely on that: other pods need theirs until they end.
	tolerating
)

func turnOf(pod *corev1.Pod) turn {
	switch {
	case toleratesCordon(pod):
		return tolerating
	case isCritical(pod):
		return critical
	}
	return workload
}

// evicted says why a pod is evicted now.
func (t turn) evicted() string {
	switch t {
	case critical:
		return "critical pod, and no workload pod is left"
	case tolerating:
		return "pod that tolerates the cordon, and no other pod is left"
	}
	return "workload pod"
}

// blocked says why a pod is not evicted yet.
func (t turn) blocked() string {
	if t == tolerating {
		return "pod that tolerates the cordon: other pods go first"
	}
	return "critical pod: workload pods go first"
}

// toleratesCordon reports whether a scheduler may put the pod onto a cordoned node.
func toleratesCordon(pod *corev1.Pod) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) &&
			(t.Key == corev1.TaintNodeUnschedulable || t.Key == "" && t.Operator == corev1.TolerationOpExists) &&
			(t.Operator == corev1.TolerationOpExists || t.Value == "") {
			return true
		}
	}
	return false
}

// schedulerLag is how long after a node was cordoned a scheduler may still put a pod onto it that does not tolerate
// that, because its cache is late.
const schedulerLag = 10 * time.Second

// comesBack reports whether a pod is the successor of one that was evicted from this node, and would have another one
// if it were evicted as well: it tolerates the cordon, or its controller names the node.
func (p *planner) comesBack(pod *corev1.Pod) bool {
	after, successor := p.Successors[pod.UID]
	return successor && (toleratesCordon(pod) || after >= schedulerLag)
}

// returning knows which pods of a node are the successors of evicted ones. The zero value knows none.
type returning struct {
	// seen are the pods that were on the node before a pod of their controller was evicted.
	seen map[types.UID]bool
	// evicted is when the first pod of a controller was evicted, by the controller's UID.
	evicted map[types.UID]time.Time
	// successors are the other pods of these controllers, and how long after the eviction they were first seen.
	successors map[types.UID]time.Duration
}

// observe takes note of the pods that are on the node now.
func (r *returning) observe(pods []corev1.Pod, now time.Time) {
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

// leaves takes note that a pod was evicted or deleted.
func (r *returning) leaves(pod *corev1.Pod, now time.Time) {
	owner := controllerOf(pod)
	if _, known := r.evicted[owner]; !known && owner != "" {
		r.evicted[owner] = now
	}
}

// controllerOf returns the UID of the pod's controller, "" if it has none.
func controllerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return ""
}
