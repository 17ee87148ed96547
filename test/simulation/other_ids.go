package simulation

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// distributionScheme is the prefix of provider IDs that a distribution's own cloud controller sets.
const distributionScheme = "k3s://"

// otherIDScenarios returns scenarios in which the provider IDs of Nodes differ from those of the instances. Their
// machines never become Running. They are drained, and their Nodes are deleted with them.
func otherIDScenarios() []Scenario {
	return []Scenario{{Name: "other-provider-ids", Group: Lifecycle, Controllers: CloudController | Approval,
		Script: inOrder([]Action{
			trouble("the cloud controller belongs to a distribution", func(t *troubles) { t.otherIDs = true }),
			create(fleet(1, "with-token", joinsWithin(impatience))), wait(impatience + 4*time.Minute), scale(0),
		}), MayDiffer: anyEnd}}
}

// idOn returns the provider ID that the cloud controller sets on a Node.
func (t *troubles) idOn(node *corev1.Node, in *instance) string {
	if t.otherIDs {
		return distributionScheme + node.Name
	}
	return in.ProviderID
}

// ofDistribution reports whether a Node has a provider ID of a distribution.
func ofDistribution(node *corev1.Node) bool {
	return strings.HasPrefix(node.Spec.ProviderID, distributionScheme)
}
