package simulation

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// distributionScheme begins the provider IDs of a distribution's own cloud controller.
const distributionScheme = "k3s://"

// otherIDScenarios are Nodes whose provider IDs are not those of their instances. Their machines never become Running;
// they are drained, and their Nodes go with them.
func otherIDScenarios() []Scenario {
	return []Scenario{{Name: "other-provider-ids", Group: Lifecycle, Controllers: CloudController | Approval,
		Script: inOrder([]Action{
			trouble("the cloud controller is a distribution's", func(t *troubles) { t.otherIDs = true }),
			create(fleet(1, "with-token", joinsWithin(impatience))), wait(impatience + 4*time.Minute), scale(0),
		}), MayDiffer: anyEnd}}
}

// idOn is the provider ID that the cloud controller gives a Node.
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
