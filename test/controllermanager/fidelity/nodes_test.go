package fidelity

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func registerNode(name string) step {
	return step{name: "register node " + name, do: func(ctx context.Context, s *cluster) error {
		n := node(name)
		s.qualify(n)
		n.Status.Conditions = conditions(corev1.ConditionFalse)
		if err := s.setAlive(ctx, n.Name, true); err != nil {
			return err
		}
		return s.Create(ctx, n)
	}}
}

func setAlive(name string, alive bool) step {
	description := "the kubelet of " + name + " becomes silent"
	if alive {
		description = "the kubelet of " + name + " returns"
	}
	return step{name: description, do: func(ctx context.Context, s *cluster) error {
		return s.setAlive(ctx, s.name(name), alive)
	}}
}

func setNodeReady(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions = conditions(status) }
}

func cordon(unschedulable bool) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Unschedulable = unschedulable }
}

func addTaint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func TestTaintsFollowConditions(t *testing.T) {
	pressure := func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }
	compare(t, registerNode("n"), changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)),
		change(node("n"), cordon(true)),
		change(node("n"), addTaint("example.com/other", corev1.TaintEffectNoSchedule)),
		changeStatus(node("n"), pressure), change(node("n"), cordon(false)),
		changeStatus(node("n"), setNodeReady(corev1.ConditionFalse)),
		changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)))
}

func tolerantPod(name string, seconds int64) *corev1.Pod {
	p := pod(name)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	return p
}

func daemonPod(name string) *corev1.Pod {
	p := tolerantPod(name, 0)
	for i := range p.Spec.Tolerations {
		p.Spec.Tolerations[i].TolerationSeconds = nil
	}
	return p
}

func staticPod(name string) *corev1.Pod {
	p := pod(name)
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	return p
}

func TestSilentNode(t *testing.T) {
	compare(t, registerNode("n"), changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)),
		create(pod("patient")), create(tolerantPod("impatient", 0)), create(tolerantPod("briefly", 2)),
		create(daemonPod("daemon")), create(staticPod("static")), create(tolerantPod("done", 0)),
		changeStatus(pod("patient"), setReady), changeStatus(pod("impatient"), setReady),
		changeStatus(pod("briefly"), setReady),
		changeStatus(pod("daemon"), setReady), changeStatus(pod("static"), setReady), changeStatus(pod("done"), setSucceeded),
		setAlive("n", false), setAlive("n", true), changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)),
		changeStatus(pod("daemon"), setReady))
}

// Pods are also evicted from a node that reports that it is not ready, for example after a restart of its kubelet. The
// kubelet still reports the status of its pods.
func TestNotReadyNode(t *testing.T) {
	compare(t, registerNode("n"), changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)),
		create(tolerantPod("impatient", 0)), create(pod("patient")), changeStatus(pod("patient"), setReady),
		changeStatus(node("n"), setNodeReady(corev1.ConditionFalse)),
		changeStatus(node("n"), setNodeReady(corev1.ConditionTrue)),
		setAlive("n", false), changeStatus(node("n"), setNodeReady(corev1.ConditionFalse)))
}

// A terminating pod remains on a silent node until the node gets the out-of-service taint.
func TestOutOfServiceNode(t *testing.T) {
	blocked := pod("blocked")
	blocked.Finalizers = []string{finalizer}
	compare(t, joinNode("n"), create(pod("web")), create(daemonPod("daemon")), create(staticPod("static")),
		create(blocked),
		changeStatus(pod("web"), setReady), changeStatus(pod("daemon"), setReady), changeStatus(pod("static"), setReady),
		setAlive("n", false), remove(pod("web")), change(node("n"), addOutOfServiceTaint), remove(staticPod("static")),
		change(blocked, func(p *corev1.Pod) { p.Finalizers = nil }))
}

// On a ready node, the out-of-service taint only evicts the pods. The kubelet then ends the pods.
func TestReadyOutOfServiceNode(t *testing.T) {
	compare(t, joinNode("n"), create(pod("web")), create(staticPod("static")), changeStatus(pod("web"), setReady),
		change(node("n"), addTaint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)),
		remove(pod("web"), client.GracePeriodSeconds(0)))
}

func TestNodeWithoutStatus(t *testing.T) {
	compare(t, step{name: "create a node without a kubelet", do: func(ctx context.Context, s *cluster) error {
		n := node("n")
		s.qualify(n)
		if s.double != nil {
			s.double.silent[n.Name] = true
		}
		return s.Create(ctx, n)
	}})
}

// A pod without a node is deleted at once, because it has no kubelet.
func TestUnscheduledPod(t *testing.T) {
	waiting := pod("waiting")
	waiting.Spec.NodeName, waiting.Spec.NodeSelector = "", map[string]string{"no": "node"}
	waiting.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	compare(t, create(waiting), remove(waiting))
}
