package fidelity

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// registers makes a Node as its kubelet does, which is not ready yet.
func registers(name string) sentence {
	return sentence{what: "a kubelet registers as " + name, do: func(ctx context.Context, s *scene) error {
		n := node(name)
		s.qualify(n)
		n.Status.Conditions = conditions(corev1.ConditionFalse)
		if err := s.lives(ctx, n.Name, true); err != nil {
			return err
		}
		return s.Create(ctx, n)
	}}
}

func lives(name string, alive bool) sentence {
	what := "the kubelet of " + name + " falls silent"
	if alive {
		what = "the kubelet of " + name + " is heard of again"
	}
	return sentence{what: what, do: func(ctx context.Context, s *scene) error { return s.lives(ctx, s.name(name), alive) }}
}

func reporting(ready corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions = conditions(ready) }
}

func cordon(is bool) func(*corev1.Node) { return func(n *corev1.Node) { n.Spec.Unschedulable = is } }

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func TestTaintsFollowWhatANodeIs(t *testing.T) {
	pressure := func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }
	compare(t, registers("n"), report(node("n"), reporting(corev1.ConditionTrue)), change(node("n"), cordon(true)),
		change(node("n"), tainted("example.com/other", corev1.TaintEffectNoSchedule)),
		report(node("n"), pressure), change(node("n"), cordon(false)), report(node("n"), reporting(corev1.ConditionFalse)),
		report(node("n"), reporting(corev1.ConditionTrue)))
}

// tolerating returns a pod that stays on nodes that are not ready or not heard of for so many seconds.
func tolerating(name string, seconds int64) *corev1.Pod {
	p := pod(name)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	return p
}

// daemon returns a pod as DaemonSets make them, static one as kubelets mirror them.
func daemon(name string) *corev1.Pod {
	p := tolerating(name, 0)
	for i := range p.Spec.Tolerations {
		p.Spec.Tolerations[i].TolerationSeconds = nil
	}
	return p
}

func static(name string) *corev1.Pod {
	p := pod(name)
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	return p
}

func TestASilentNode(t *testing.T) {
	compare(t, registers("n"), report(node("n"), reporting(corev1.ConditionTrue)),
		create(pod("patient")), create(tolerating("impatient", 0)), create(tolerating("briefly", 2)),
		create(daemon("daemon")), create(static("static")), create(tolerating("done", 0)),
		report(pod("patient"), ready), report(pod("impatient"), ready), report(pod("briefly"), ready),
		report(pod("daemon"), ready), report(pod("static"), ready), report(pod("done"), ended),
		lives("n", false), lives("n", true), report(node("n"), reporting(corev1.ConditionTrue)),
		report(pod("daemon"), ready))
}

// A node that says that it is not ready, as one does whose kubelet starts anew, loses pods as well. What it says of the
// others counts until it falls silent.
func TestANodeThatIsNotReady(t *testing.T) {
	compare(t, registers("n"), report(node("n"), reporting(corev1.ConditionTrue)), create(tolerating("impatient", 0)),
		create(pod("patient")), report(pod("patient"), ready),
		report(node("n"), reporting(corev1.ConditionFalse)), report(node("n"), reporting(corev1.ConditionTrue)),
		lives("n", false), report(node("n"), reporting(corev1.ConditionFalse)))
}

// Pods that are being deleted stay on a node whose kubelet is silent, until the node is said to be out of service.
func TestANodeOutOfService(t *testing.T) {
	blocked := pod("blocked")
	blocked.Finalizers = []string{protected}
	compare(t, joins("n"), create(pod("web")), create(daemon("daemon")), create(static("static")), create(blocked),
		report(pod("web"), ready), report(pod("daemon"), ready), report(pod("static"), ready), lives("n", false),
		remove(pod("web")), change(node("n"), outOfService), remove(static("static")),
		change(blocked, func(p *corev1.Pod) { p.Finalizers = nil }))
}

// On a node that is ready, that taint only ends pods, which its kubelet does.
func TestAReadyNodeOutOfService(t *testing.T) {
	compare(t, joins("n"), create(pod("web")), create(static("static")), report(pod("web"), ready),
		change(node("n"), tainted(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)),
		remove(pod("web"), client.GracePeriodSeconds(0)))
}

// A kubelet that never reported anything.
func TestANodeThatNeverReported(t *testing.T) {
	bare := node("n")
	compare(t, sentence{what: "somebody makes a node", do: func(ctx context.Context, s *scene) error {
		n := bare.DeepCopy()
		s.qualify(n)
		if s.double != nil {
			s.double.silent[n.Name] = true
		}
		return s.Create(ctx, n)
	}})
}

// A pod that was not scheduled needs nobody to end it.
func TestAPodWithoutANode(t *testing.T) {
	waiting := pod("waiting")
	waiting.Spec.NodeName, waiting.Spec.NodeSelector = "", map[string]string{"no": "node"}
	waiting.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	compare(t, create(waiting), remove(waiting))
}
