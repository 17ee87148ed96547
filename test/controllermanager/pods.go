package controllermanager

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	switch {
	case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
		return false
	case t.Operator == corev1.TolerationOpExists:
		return true
	}
	return t.Value == taint.Value
}

// UntoleratedTaints returns the taints of a Node that have one of the effects and that a pod does not tolerate.
func UntoleratedTaints(p *corev1.Pod, node *corev1.Node, effects ...corev1.TaintEffect) (found []corev1.Taint) {
	for _, taint := range node.Spec.Taints {
		if slices.Contains(effects, taint.Effect) &&
			!slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			found = append(found, taint)
		}
	}
	return found
}

// toleratedUntil returns when a pod stops tolerating the NoExecute taints of a node. If no toleration has
// tolerationSeconds, ends is false, because the pod stays forever or is evicted immediately. The time of a pod that was
// created after the taint begins with the pod.
func toleratedUntil(p *corev1.Pod, node *corev1.Node) (at time.Time, ends bool) {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil {
			continue
		}
		for _, t := range p.Spec.Tolerations {
			if t.TolerationSeconds == nil || !tolerates(t, taint) {
				continue
			}
			began := taint.TimeAdded.Time
			if p.CreationTimestamp.After(began) {
				began = p.CreationTimestamp.Time
			}
			until := began.Add(time.Duration(*t.TolerationSeconds) * time.Second)
			if !ends || until.Before(at) {
				at, ends = until, true
			}
		}
	}
	return at, ends
}

// mustEvict reports whether a taint requires the eviction of a pod now, in any phase of the pod.
func (m Manager) mustEvict(p *corev1.Pod, node *corev1.Node) bool {
	if len(UntoleratedTaints(p, node, corev1.TaintEffectNoExecute)) > 0 {
		return true
	}
	until, ends := toleratedUntil(p, node)
	return ends && !m.Now().Before(until)
}

// evict returns the next action of the taint eviction controller: the controller first sets a condition of the pod,
// and then deletes the pod.
func (m Manager) evict(p *corev1.Pod) Choice {
	if !isDisruptionTarget(p) {
		return newChoice(func() error {
			return m.patchStatus(TaintEviction, p, m.withDisruptionTarget(p, "DeletionByTaintManager",
				"Taint manager: deleting due to NoExecute taint"))
		}, "taint eviction marks pod %s", p.Name)
	}
	return newChoice(func() error {
		return client.IgnoreNotFound(m.Server.Client(TaintEviction).Delete(context.Background(), p.DeepCopy()))
	}, "taint eviction deletes pod %s", p.Name)
}

func isDisruptionTarget(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

func (m Manager) withDisruptionTarget(p *corev1.Pod, reason, message string) *corev1.Pod {
	changed := p.DeepCopy()
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget
	})
	changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
		Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: m.now()})
	return changed
}

// HasEnded reports whether the containers of a pod have ended and do not restart.
func HasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// collectable reports whether the pod collector must remove a pod. The pod collector removes a pod whose Node does not
// exist. It also removes a terminating pod whose Node is not ready and has the out-of-service taint.
func (m Manager) collectable(p *corev1.Pod, node *corev1.Node) bool {
	if HasEnded(p) && p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 0 {
		return false // The real collector repeats the deletion of a pod with finalizers without effect.
	}
	if node == nil {
		return p.Spec.NodeName != ""
	}
	ready := ReadyCondition(node)
	return !p.DeletionTimestamp.IsZero() && OutOfService(node) && (ready == nil || ready.Status != corev1.ConditionTrue)
}

// OutOfService reports whether a Node has the out-of-service taint.
func OutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService
	})
}

// collect returns the next action of the pod collector: the collector sets a running pod to Failed, and then deletes
// the pod without a grace period.
func (m Manager) collect(p *corev1.Pod, node *corev1.Node) Choice {
	if !HasEnded(p) {
		failed := p.DeepCopy()
		if node == nil {
			failed = m.withDisruptionTarget(p, "DeletionByPodGC", "PodGC: node no longer exists")
		}
		failed.Status.Phase = corev1.PodFailed
		return newChoice(func() error { return m.patchStatus(PodCollector, p, failed) }, "pod collector fails pod %s", p.Name)
	}
	return newChoice(func() error {
		return client.IgnoreNotFound(m.Server.Client(PodCollector).Delete(context.Background(), p.DeepCopy(),
			client.GracePeriodSeconds(0)))
	}, "pod collector removes pod %s", p.Name)
}
