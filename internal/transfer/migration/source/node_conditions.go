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

// nodeConditions collects the conditions that make a machine unhealthy, as Machinist's checks have them: each type and
// status once.
type nodeConditions struct {
	// fields and name are where they come from.
	fields *fields
	name   string
	list   []v1beta1.UnhealthyNodeCondition
}

// mostNodeConditions is how many a check has at most.
const mostNodeConditions = 64

// ofKubernetes are the conditions that every Node has.
var ofKubernetes = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
	corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// add adds a condition that makes a machine unhealthy when it has had one of the statuses for the time. Of two times
// for one status the shorter counts, because one reason is enough.
func (n *nodeConditions) add(name string, timeout time.Duration, statuses ...corev1.ConditionStatus) {
	meant := strings.TrimSpace(name)
	for _, known := range ofKubernetes {
		if strings.EqualFold(meant, string(known)) {
			meant = string(known)
		}
	}
	if name != meant {
		n.fields.find(provider.FindingNote, CodeInvalidValue, n.name, "No Node has the condition %.63q, so it never "+
			"counted; %.63s is meant. It does not come over.", name, meant)
		return
	}
	for _, status := range statuses {
		n.one(corev1.NodeConditionType(name), status, timeout)
	}
}

func (n *nodeConditions) one(name corev1.NodeConditionType, status corev1.ConditionStatus, timeout time.Duration) {
	i := slices.IndexFunc(n.list, func(c v1beta1.UnhealthyNodeCondition) bool {
		return c.Type == name && c.Status == status
	})
	switch {
	case name == corev1.NodeReady && status == corev1.ConditionTrue:
		n.fields.find(provider.FindingBlocker, CodeInvalidValue, n.name, "A Node that is Ready would be unhealthy.")
	case i >= 0:
		n.list[i].Timeout = *asDuration(min(n.list[i].Timeout.Duration, timeout))
	case len(n.list) == mostNodeConditions:
		n.fields.find(provider.FindingLoss, CodeBounded, n.name, "Machinist's checks have at most %d conditions with their "+
			"statuses; %.63s being %s does not come over.", mostNodeConditions, name, status)
	default:
		n.list = append(n.list, v1beta1.UnhealthyNodeCondition{Type: name, Status: status, Timeout: *asDuration(timeout)})
	}
}

// allMachines is a bound that keeps no machine from being replaced.
func allMachines() *intstr.IntOrString {
	all := intstr.FromString("100%")
	return &all
}
