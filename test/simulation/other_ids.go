package simulation

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const distributionScheme = "k3s://"

// otherIDScenarios returns scenarios in which the provider IDs of Nodes differ from those of their instances. The
// machines never become Running. When they are deleted, they are drained and their Nodes are deleted.
func otherIDScenarios() []Scenario {
	return []Scenario{{Name: "other-provider-ids", Group: Lifecycle, Controllers: CloudController | Approval,
		Script: inOrder([]Action{
			trouble("the cloud controller belongs to a distribution", func(t *cloudProblems) { t.otherIDs = true }),
			create(fleet(1, "with-token", joinsWithin(impatience))), wait(impatience + 4*time.Minute), scale(0),
		}), MayDiffer: anyEnd}}
}

func (t *cloudProblems) idOn(node *corev1.Node, in *instance) string {
	if t.otherIDs {
		return distributionScheme + node.Name
	}
	return in.ProviderID
}

func ofDistribution(node *corev1.Node) bool {
	return strings.HasPrefix(node.Spec.ProviderID, distributionScheme)
}
