package drain

import corev1 "k8s.io/api/core/v1"

type turn int

const (
	workload turn = iota
	critical
	// tolerating contains the pods that tolerate the cordon, which are evicted last. Storage operators give this
	// toleration to their pods, because the other pods of the node need the storage until they have ended.
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

func (t turn) whyEvicted() string {
	switch t {
	case critical:
		return "critical pod, and no workload pod is left"
	case tolerating:
		return "pod that tolerates the cordon, and no other pod is left"
	}
	return "workload pod"
}

func (t turn) whyBlocked() string {
	if t == tolerating {
		return "pod that tolerates the cordon: other pods are evicted first"
	}
	return "critical pod: workload pods are evicted first"
}

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
