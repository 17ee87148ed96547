package machine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// deviationsOf returns what the user data of a new machine should have done and did not, by what its Node shows when it
// is first seen. Its class reports it: what one Node shows, the next ones of the class will show, too.
func deviationsOf(node *corev1.Node, m *v1beta1.Machine) (out []v1beta1.NodeDeviation) {
	if _, given := node.Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]; given ||
		launchReason(m) == v1beta1.ReasonInstanceAdopted {
		return nil // It was given its template before, or was not made from the user data.
	}
	if len(m.Spec.Node.Taints)+len(m.Spec.Node.StartupTaints) > 0 && find(node.Spec.Taints, uninitializedTaint) < 0 {
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

// isVersion reports whether a kubelet has the version that is wanted. A distribution may add to it, as in v1.36.3+k3s1,
// and a Node whose kubelet has not written its status yet says nothing.
func isVersion(kubelet, want string) bool {
	if kubelet == "" || want == "" {
		return true
	}
	added, is := strings.CutPrefix(kubelet, want)
	return is && (added == "" || strings.ContainsAny(added[:1], "+-"))
}
