package source

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// nodeConditions collects conditions of Nodes that make a machine unhealthy. Each pair of type and status occurs once,
// as in Machinist's health checks.
type nodeConditions struct {
	// fields and name identify the old field in findings.
	fields *fields
	name   string
	list   []v1beta1.UnhealthyNodeCondition
}

const maxNodeConditions = 64

// kubernetesConditions are the conditions of every Node.
var kubernetesConditions = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure,
	corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// add adds a condition. A machine becomes unhealthy after one of the statuses has lasted for the timeout. For the same
// status, the shorter timeout applies.
func (n *nodeConditions) add(name string, timeout time.Duration, statuses ...corev1.ConditionStatus) {
	corrected := strings.TrimSpace(name)
	for _, known := range kubernetesConditions {
		if strings.EqualFold(corrected, string(known)) {
			corrected = string(known)
		}
	}
	if name != corrected {
		n.fields.report(provider.FindingNote, CodeInvalidValue, n.name, "No Node has the condition %.63q, so it never "+
			"had an effect. It is not migrated. The correct spelling is %.63s.", name, corrected)
		return
	}
	for _, status := range statuses {
		n.addStatus(corev1.NodeConditionType(name), status, timeout)
	}
}

func (n *nodeConditions) addStatus(name corev1.NodeConditionType, status corev1.ConditionStatus,
	timeout time.Duration) {
	i := slices.IndexFunc(n.list, func(c v1beta1.UnhealthyNodeCondition) bool {
		return c.Type == name && c.Status == status
	})
	switch {
	case name == corev1.NodeReady && status == corev1.ConditionTrue:
		n.fields.report(provider.FindingBlocker, CodeInvalidValue, n.name, "With this condition, all Ready Nodes would be "+
			"unhealthy.")
	case i >= 0:
		n.list[i].Timeout = *asDuration(min(n.list[i].Timeout.Duration, timeout))
	case len(n.list) == maxNodeConditions:
		n.fields.report(provider.FindingLoss, CodeBounded, n.name, "A health check of Machinist has at most %d "+
			"conditions with their statuses. The condition %.63s with status %s is not migrated.", maxNodeConditions, name,
			status)
	default:
		n.list = append(n.list, v1beta1.UnhealthyNodeCondition{Type: name, Status: status, Timeout: *asDuration(timeout)})
	}
}

// allMachines returns 100%: all machines may be replaced at the same time.
func allMachines() *intstr.IntOrString {
	all := intstr.FromString("100%")
	return &all
}
