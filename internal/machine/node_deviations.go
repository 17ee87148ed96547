package machine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// deviationsOf returns the differences between a new Node and the Machine that the user data should have prevented.
// They are reported in the machine's class, because the next machines of the class will have the same ones.
func deviationsOf(node *corev1.Node, m *v1beta1.Machine) (out []v1beta1.NodeDeviation) {
	if _, given := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]; given ||
		launchReason(m) == v1beta1.ReasonInstanceAdopted {
		return nil // The Node had a template before, or its instance was not created from the user data.
	}
	if len(m.Spec.Node.Taints)+len(m.Spec.Node.StartupTaints) > 0 && findTaint(node.Spec.Taints, uninitializedTaint) < 0 {
		out = append(out, v1beta1.NodeNoUninitializedTaint)
	}
	if !isVersion(node.Status.NodeInfo.KubeletVersion, m.Spec.Version) {
		out = append(out, v1beta1.NodeOtherVersion)
	}
	if in := m.Status.Instance; in != nil && in.NodeName != "" && in.NodeName != node.Name {
		out = append(out, v1beta1.NodeOtherName)
	}
	return out
}

// isVersion reports whether a kubelet has the desired version. A distribution may append a suffix to the version, as in
// v1.36.3+k3s1. The result is true if the kubelet has not written its version yet.
func isVersion(kubelet, want string) bool {
	if kubelet == "" || want == "" {
		return true
	}
	added, ok := strings.CutPrefix(kubelet, want)
	return ok && (added == "" || strings.ContainsAny(added[:1], "+-"))
}
