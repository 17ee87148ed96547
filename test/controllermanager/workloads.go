package controllermanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload describes a set of pods that a controller manages.
type Workload struct {
	// Kind is the kind of the controller: ReplicaSet, StatefulSet, DaemonSet or Job.
	Kind            string
	Namespace, Name string
	// Replicas is the number of pods. Replicas has no effect for a DaemonSet.
	Replicas int
	// Pod is the template of the pods, without name and node. The owner is the workload.
	Pod *corev1.Pod
}

// Missing returns the pods that the controller of a workload would create now, each with the node that the scheduler
// selects. Pods that fit on no node are not returned.
func (m Manager) Missing(w Workload) []*corev1.Pod {
	pods := m.podsOf(w)
	switch w.Kind {
	case "DaemonSet":
		return m.missingDaemons(w, pods)
	case "StatefulSet":
		return m.nextInOrder(w, pods)
	}
	// A terminating pod does not count, because the controller replaces a pod as soon as its deletion begins.
	n := 0
	for _, p := range pods {
		if p.DeletionTimestamp.IsZero() && (w.Kind == "Job" || !HasEnded(p)) {
			n++
		}
	}
	if node := m.schedule(w.Pod, pods); n < w.Replicas && node != "" {
		return []*corev1.Pod{w.pod("", node)}
	}
	return nil
}

// missingDaemons returns a pod for each suitable node without a pod of the workload. A terminating pod on a node
// still counts as the pod of this node.
func (m Manager) missingDaemons(w Workload, pods []*corev1.Pod) (out []*corev1.Pod) {
	hasPod := map[string]bool{} // The keys are names of nodes.
	for _, p := range pods {
		hasPod[p.Spec.NodeName] = true
	}
	for _, o := range m.Server.Snapshot(nodeKind) {
		if node := o.(*corev1.Node); !hasPod[node.Name] && Schedulable(w.Pod, node) {
			out = append(out, w.pod("", node.Name))
		}
	}
	return out
}

// nextInOrder returns the first missing pod of a StatefulSet, or nothing if an earlier pod is not ready.
func (m Manager) nextInOrder(w Workload, pods []*corev1.Pod) []*corev1.Pod {
	byName := map[string]*corev1.Pod{}
	for _, p := range pods {
		byName[p.Name] = p
	}
	for i := range w.Replicas {
		name := fmt.Sprintf("%s-%d", w.Name, i)
		if p := byName[name]; p == nil {
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

func (w Workload) pod(name, node string) *corev1.Pod {
	p := w.Pod.DeepCopy()
	p.Namespace, p.Name, p.Spec.NodeName = w.Namespace, name, node
	if name == "" {
		p.GenerateName = w.Name + "-"
	}
	return p
}

// schedule returns the node that the scheduler selects for another pod of a workload, or "". The scheduler avoids
// untolerated PreferNoSchedule taints and prefers the node with the fewest pods of the workload.
func (m Manager) schedule(p *corev1.Pod, pods []*corev1.Pod) (best string) {
	avoided, fewest := false, 0
	for _, o := range m.Server.Snapshot(nodeKind) {
		node := o.(*corev1.Node)
		if !Schedulable(p, node) {
			continue
		}
		avoid := len(UntoleratedTaints(p, node, corev1.TaintEffectPreferNoSchedule)) > 0
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

// Schedulable reports whether a pod can be scheduled to a node. Only labels and taints matter, not the condition Ready.
// A cordoned node is not schedulable even before it has the taint of the cordon.
func Schedulable(p *corev1.Pod, node *corev1.Node) bool {
	for key, value := range p.Spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	if node.Spec.Unschedulable {
		cordoned := &corev1.Node{}
		cordoned.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		if len(UntoleratedTaints(p, cordoned, corev1.TaintEffectNoSchedule)) > 0 {
			return false
		}
	}
	return len(UntoleratedTaints(p, node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)) == 0
}

// DaemonTolerations returns the tolerations that the DaemonSet controller adds to its pods.
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
