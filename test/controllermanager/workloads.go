package controllermanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is pods that somebody wants to run.
type Workload struct {
	// Kind is that of its object: ReplicaSet, StatefulSet, DaemonSet or Job.
	Kind            string
	Namespace, Name string
	// Replicas is how many pods it has, of which a DaemonSet has one on each node.
	Replicas int
	// Pod is one of them, as its controller makes it, but for its name and node. Its controller is the workload.
	Pod *corev1.Pod
}

// Missing returns the pods that a workload's controller would make now, each on the node that the scheduler gives it.
// It makes none for which there is no node.
func (m Manager) Missing(w Workload) []*corev1.Pod {
	pods := m.podsOf(w)
	switch w.Kind {
	case "DaemonSet":
		return m.missingDaemons(w, pods)
	case "StatefulSet":
		return m.nextInOrder(w, pods)
	}
	// A pod that is about to end is replaced at once.
	n := 0
	for _, p := range pods {
		if p.DeletionTimestamp.IsZero() && (w.Kind == "Job" || !Ended(p)) {
			n++
		}
	}
	if node := m.schedule(w.Pod, pods); n < w.Replicas && node != "" {
		return []*corev1.Pod{w.pod("", node)}
	}
	return nil
}

// missingDaemons are pods for the nodes that take one and have none, not even one that is about to end.
func (m Manager) missingDaemons(w Workload, pods []*corev1.Pod) (out []*corev1.Pod) {
	on := map[string]bool{}
	for _, p := range pods {
		on[p.Spec.NodeName] = true
	}
	for _, o := range m.Server.Snapshot(nodeKind) {
		if node := o.(*corev1.Node); !on[node.Name] && Schedulable(w.Pod, node) {
			out = append(out, w.pod("", node.Name))
		}
	}
	return out
}

// nextInOrder is the first pod of a StatefulSet that is gone, once all before it are ready.
func (m Manager) nextInOrder(w Workload, pods []*corev1.Pod) []*corev1.Pod {
	named := map[string]*corev1.Pod{}
	for _, p := range pods {
		named[p.Name] = p
	}
	for i := range w.Replicas {
		name := fmt.Sprintf("%s-%d", w.Name, i)
		if p := named[name]; p == nil {
			if node := m.schedule(w.Pod, pods); node != "" {
				return []*corev1.Pod{w.pod(name, node)}
			}
			return nil
		} else if !p.DeletionTimestamp.IsZero() || p.Status.Phase != corev1.PodRunning || !isReady(p) {
			return nil
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (m Manager) podsOf(w Workload) (found []*corev1.Pod) {
	for _, o := range m.Server.Snapshot(podKind) {
		p := o.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(p)
		if owner != nil && owner.Kind == w.Kind && owner.Name == w.Name && p.Namespace == w.Namespace {
			found = append(found, p)
		}
	}
	return found
}

// pod returns one of the pods, of a name of its own or a generated one.
func (w Workload) pod(name, node string) *corev1.Pod {
	p := w.Pod.DeepCopy()
	p.Namespace, p.Name, p.Spec.NodeName = w.Namespace, name, node
	if name == "" {
		p.GenerateName = w.Name + "-"
	}
	return p
}

// schedule returns the node that the scheduler gives one more of a workload's pods, "" if there is none that takes it: one
// that rather takes none only where there is no other, and of those the one with the fewest of the pods.
func (m Manager) schedule(p *corev1.Pod, pods []*corev1.Pod) (best string) {
	avoided, fewest := false, 0
	for _, o := range m.Server.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		if !Schedulable(p, node) {
			continue
		}
		avoid := len(Untolerated(p, node, corev1.TaintEffectPreferNoSchedule)) > 0
		n := 0
		for _, other := range pods {
			if other.Spec.NodeName == node.Name && other.DeletionTimestamp.IsZero() {
				n++
			}
		}
		if best == "" || avoided && !avoid || avoided == avoid && n < fewest {
			best, avoided, fewest = node.Name, avoid, n
		}
	}
	return best
}

// Schedulable reports whether a node takes a pod: its labels and taints say that, whether it is ready does not. A
// cordon counts before there is a taint for it.
func Schedulable(p *corev1.Pod, node *corev1.Node) bool {
	for key, value := range p.Spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	if node.Spec.Unschedulable {
		cordoned := &corev1.Node{}
		cordoned.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		if len(Untolerated(p, cordoned, corev1.TaintEffectNoSchedule)) > 0 {
			return false
		}
	}
	return len(Untolerated(p, node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)) == 0
}

// DaemonTolerations are those that a DaemonSet's controller gives its pods.
func DaemonTolerations() (all []corev1.Toleration) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute})
	}
	for _, key := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule})
	}
	return all
}
