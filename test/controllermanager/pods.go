package controllermanager

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tolerates reports whether a toleration is for a taint.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	switch {
	case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
		return false
	case t.Operator == corev1.TolerationOpExists:
		return true
	}
	return t.Value == taint.Value
}

// Untolerated returns those of a Node's taints of some effects that a pod does not tolerate.
func Untolerated(p *corev1.Pod, node *corev1.Node, effects ...corev1.TaintEffect) (found []corev1.Taint) {
	for _, taint := range node.Spec.Taints {
		if slices.Contains(effects, taint.Effect) &&
			!slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			found = append(found, taint)
		}
	}
	return found
}

// toleratedUntil returns until when a pod may stay on a node because it tolerates the taints that end pods for some
// time. ends is false where it may stay for ever, or must not stay at all.
func toleratedUntil(p *corev1.Pod, node *corev1.Node) (at time.Time, ends bool) {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil {
			continue
		}
		for _, t := range p.Spec.Tolerations {
			if t.TolerationSeconds == nil || !tolerates(t, taint) {
				continue
			}
			until := taint.TimeAdded.Add(time.Duration(*t.TolerationSeconds) * time.Second)
			if !ends || until.Before(at) {
				at, ends = until, true
			}
		}
	}
	return at, ends
}

// mustGo reports whether a taint of its node ends a pod now, whatever has become of its containers.
func (m Manager) mustGo(p *corev1.Pod, node *corev1.Node) bool {
	if len(Untolerated(p, node, corev1.TaintEffectNoExecute)) > 0 {
		return true
	}
	until, ends := toleratedUntil(p, node)
	return ends && !m.Now().Before(until)
}

// evict is the taint eviction controller: it says why, and deletes, in two writes.
func (m Manager) evict(p *corev1.Pod) Choice {
	if !disrupted(p) {
		return choose(func() error {
			return m.patchStatus(TaintEviction, p, m.targeted(p, "DeletionByTaintManager",
				"Taint manager: deleting due to NoExecute taint"))
		}, "taint eviction marks pod %s", p.Name)
	}
	return choose(func() error {
		return client.IgnoreNotFound(m.Server.Client(TaintEviction).Delete(context.Background(), p.DeepCopy()))
	}, "taint eviction deletes pod %s", p.Name)
}

// disrupted reports whether a pod's status says that it is about to end, and why.
func disrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// targeted returns a pod whose status says that it is about to end, and why.
func (m Manager) targeted(p *corev1.Pod, reason, message string) *corev1.Pod {
	changed := p.DeepCopy()
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget
	})
	changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
		Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: m.now()})
	return changed
}

// Ended reports whether the containers of a pod have ended for good.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// collectable reports whether the pod collector removes a pod: its Node is gone, or is not ready and said to be out of
// service while the pod is being deleted.
func (m Manager) collectable(p *corev1.Pod, node *corev1.Node) bool {
	if Ended(p) && p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 0 {
		return false // Finalizers hold it. The real one would delete it again and again, which changes nothing.
	}
	if node == nil {
		return p.Spec.NodeName != ""
	}
	ready := Ready(node)
	return !p.DeletionTimestamp.IsZero() && OutOfService(node) && (ready == nil || ready.Status != corev1.ConditionTrue)
}

// OutOfService reports whether somebody has said that what a Node stands for does not run any more.
func OutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService
	})
}

// collect is the pod collector: a pod that has not ended fails first, and is then removed without any grace.
func (m Manager) collect(p *corev1.Pod, node *corev1.Node) Choice {
	if !Ended(p) {
		failed := p.DeepCopy()
		if node == nil {
			failed = m.targeted(p, "DeletionByPodGC", "PodGC: node no longer exists")
		}
		failed.Status.Phase = corev1.PodFailed
		return choose(func() error { return m.patchStatus(PodCollector, p, failed) }, "pod collector fails pod %s", p.Name)
	}
	return choose(func() error {
		return client.IgnoreNotFound(m.Server.Client(PodCollector).Delete(context.Background(), p.DeepCopy(),
			client.GracePeriodSeconds(0)))
	}, "pod collector removes pod %s", p.Name)
}
