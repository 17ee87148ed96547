package simulation

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// distributionScheme is the prefix of the provider IDs that the cloud controller of a distribution sets.
const distributionScheme = "k3s://"

// otherIDScenarios returns scenarios in which the provider ID of each Node differs from the provider ID of its
// instance. The machines in these scenarios never become Running. When the machines are deleted, they are drained
// and their Nodes are deleted.
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

// ofDistribution reports whether the provider ID of a Node comes from a distribution's cloud controller.
func ofDistribution(node *corev1.Node) bool {
	return strings.HasPrefix(node.Spec.ProviderID, distributionScheme)
}
