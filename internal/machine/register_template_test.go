package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func taint(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

// applyOnce applies the node template and updates applied. applyOnce fails the test if a second patch would be
// needed.
func applyOnce(t *testing.T, node *corev1.Node, m *v1beta1.Machine, applied *v1beta1.AppliedNodeTemplate) *corev1.Node {
	t.Helper()
	out, err := withTemplate(node, m, *applied, applied.NodeUID != "", false)
	if err != nil {
		t.Fatal(err)
	}
	*applied = templateOf(m, node, false)
	if out == nil {
		return node
	}
	if again, err := withTemplate(out, m, *applied, true, false); err != nil || again != nil {
		t.Errorf("applying the node template is not done after one patch: %s (error %v)", cmp.Diff(out, again), err)
	}
	return out
}

// Rules: node-template-one-patch, startup-taints-once.
func TestApplyingTheTemplate(t *testing.T) {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "pool-1", Namespace: "fleet"}}
	m.Spec.Node = v1beta1.NodeTemplate{
		Labels:        map[string]string{"ours": "1", "changing": "a"},
		Annotations:   map[string]string{"note": "x"},
		Taints:        []corev1.Taint{taint("dedicated", "gpu")},
		StartupTaints: []corev1.Taint{taint("network", "")},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid", Labels: map[string]string{"others": "f"}}}
	node.Spec.Taints = []corev1.Taint{taint(v1beta1.NodeTaintUninitialized, ""), taint("others", "o")}

	applied := &v1beta1.AppliedNodeTemplate{}
	node = applyOnce(t, node, m, applied)
	first := *applied
	wantLabels := map[string]string{"others": "f", "ours": "1", "changing": "a", v1beta1.NodeLabelMachine: "pool-1"}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels after the first patch: %s", diff)
	}
	if diff := cmp.Diff([]corev1.Taint{taint("others", "o"), taint("dedicated", "gpu"), taint("network", "")},
		node.Spec.Taints); diff != "" {
		t.Errorf("taints after the first patch, want no uninitialized taint and the startup taint: %s", diff)
	}
	if node.Annotations[v1beta1.NodeAnnotationClusterNamespace] != "fleet" ||
		node.Annotations[v1beta1.NodeAnnotationMachine] != "pool-1" {
		t.Errorf("the link back to the machine is missing: %v", node.Annotations)
	}

	t.Run("a startup taint that was removed does not come back", func(t *testing.T) {
		n := node.DeepCopy()
		n.Spec.Taints = n.Spec.Taints[:2]
		if out := applyOnce(t, n, m, &first); findTaint(out.Spec.Taints, taint("network", "")) >= 0 {
			t.Errorf("taints: %v", out.Spec.Taints)
		}
	})
	t.Run("withdrawn keys are removed, changed ones are changed, and others stay", func(t *testing.T) {
		n, m := node.DeepCopy(), m.DeepCopy()
		n.Labels["later"] = "by others"
		m.Spec.Node = v1beta1.NodeTemplate{Labels: map[string]string{"changing": "b"}}
		out := applyOnce(t, n, m, applied)
		want := map[string]string{"others": "f", "later": "by others", "changing": "b", v1beta1.NodeLabelMachine: "pool-1"}
		if diff := cmp.Diff(want, out.Labels); diff != "" {
			t.Errorf("labels: %s", diff)
		}
		if _, there := out.Annotations["note"]; there {
			t.Errorf("the annotation note is no longer wanted, but is still set")
		}
		if findTaint(out.Spec.Taints, taint("dedicated", "")) >= 0 || findTaint(out.Spec.Taints, taint("others", "")) < 0 {
			t.Errorf("taints: %v", out.Spec.Taints)
		}
	})
	// Rule applied-template-in-status: the kubelet may write to its Node.
	t.Run("the annotation on the node is not trusted", func(t *testing.T) {
		record := `{"labels":{"quarantine":"1"},"taints":[{"key":"others","effect":"NoSchedule"}],"inService":true}`
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid", Labels: map[string]string{"quarantine": "1"},
			Annotations: map[string]string{v1beta1.NodeAnnotationLastAppliedNodeTemplate: record}}}
		n.Spec.Taints = []corev1.Taint{taint("others", "o")}
		out := applyOnce(t, n, m, &v1beta1.AppliedNodeTemplate{})
		if out.Labels["quarantine"] != "1" || findTaint(out.Spec.Taints, taint("others", "")) < 0 ||
			findTaint(out.Spec.Taints, taint("network", "")) < 0 {
			t.Errorf("labels %v, taints %v: want the quarantine to stay, and the startup taint", out.Labels, out.Spec.Taints)
		}
	})
	t.Run("a node that has its template needs no patch", func(t *testing.T) {
		if out, err := withTemplate(node, m, first, true, false); out != nil || err != nil {
			t.Errorf("withTemplate = %v, %v; want nothing to do", out, err)
		}
	})
}
