package machine

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// Rule: broken-promise-of-user-data-is-told.
func TestDeviationsFromTheUserData(t *testing.T) {
	for name, test := range map[string]struct {
		machine func(*v1beta1.Machine)
		node    func(*corev1.Node)
		want    []v1beta1.NodeDeviation
	}{
		"no deviation": {func(*v1beta1.Machine) {}, func(*corev1.Node) {}, nil},
		"no taint":     {func(*v1beta1.Machine) {}, func(n *corev1.Node) { n.Spec.Taints = nil }, []v1beta1.NodeDeviation{v1beta1.NodeNoUninitializedTaint}},
		"no taint, startup taints only": {func(m *v1beta1.Machine) {
			m.Spec.Node.StartupTaints, m.Spec.Node.Taints = m.Spec.Node.Taints, nil
		}, func(n *corev1.Node) { n.Spec.Taints = nil }, []v1beta1.NodeDeviation{v1beta1.NodeNoUninitializedTaint}},
		"no taint, but none is needed": {func(m *v1beta1.Machine) { m.Spec.Node.Taints = nil },
			func(n *corev1.Node) { n.Spec.Taints = nil }, nil},
		"another version":          {func(*v1beta1.Machine) {}, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.30" }, []v1beta1.NodeDeviation{v1beta1.NodeOtherVersion}},
		"a distribution's version": {func(*v1beta1.Machine) {}, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1" }, nil},
		"no version is specified":  {func(m *v1beta1.Machine) { m.Spec.Version = "" }, func(*corev1.Node) {}, nil},
		"another name":             {func(*v1beta1.Machine) {}, func(n *corev1.Node) { n.Name = "n.novalocal" }, []v1beta1.NodeDeviation{v1beta1.NodeOtherName}},
		"the template was applied before": {func(*v1beta1.Machine) {}, func(n *corev1.Node) {
			n.Spec.Taints, n.Annotations = nil, map[string]string{v1beta1.NodeAnnotationLastAppliedNodeTemplate: "x"}
		}, nil},
	} {
		m := &v1beta1.Machine{}
		m.Spec.Version, m.Spec.Node.Taints = "v1.36.3", []corev1.Taint{taint("dedicated", "db")}
		m.Status.Instance = &v1beta1.InstanceStatus{NodeName: "n"}
		node := &corev1.Node{}
		node.Name, node.Spec.Taints, node.Status.NodeInfo.KubeletVersion = "n", []corev1.Taint{uninitializedTaint}, "v1.36.3"
		test.machine(m)
		test.node(node)
		if got := deviationsOf(node, m); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Rules: broken-promise-of-user-data-is-told, changed-user-data-is-told.
func TestUserDataHashAndDeviationsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "#cloud-config")
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.Node.Taints = []corev1.Taint{taint("dedicated", "db")} })
	w.reconcile("m")
	want := resolve.UserDataHash(w.namespace, []byte("#cloud-config"))
	if got := w.get("m").Status.Instance.UserDataHash; got != want {
		t.Errorf("hash %q, want %q", got, want)
	}
	w.setSecret("small-user-data", "userData", "#cloud-config\n# changed")
	w.node("m", true, func(n *corev1.Node) { n.Spec.Taints = nil })
	w.reconcile("m")
	w.reconcile("m")
	m := w.get("m")
	if got := m.Status.Instance.UserDataHash; got != want {
		t.Errorf("hash %q after the Secret changed, want %q", got, want)
	}
	if got := m.Status.NodeTemplate.Deviations; !slices.Contains(got, v1beta1.NodeNoUninitializedTaint) {
		t.Errorf("deviations %v", got)
	}
}
