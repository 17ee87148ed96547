package installer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func nodesWith(providerIDs ...string) []corev1.Node {
	nodes := make([]corev1.Node, len(providerIDs))
	for i, id := range providerIDs {
		nodes[i].Spec.ProviderID = id
	}
	return nodes
}

// Rule: platform-from-provider-ids.
func TestThePlatformIsThatOfAllNodesWithAProviderID(t *testing.T) {
	for name, test := range map[string]struct {
		nodes    []corev1.Node
		detected string // "" if not
		reason   string
		message  string
	}{
		"one platform": {nodes: nodesWith("azure:///subscriptions/a", "azure:///subscriptions/b"),
			detected: "Detected azure from 2 of 2 Nodes"},
		"a Node without a provider ID": {nodes: nodesWith("azure:///a", "", "azure:///b"),
			detected: "Detected azure from 2 of 3 Nodes"},
		"the simulated cloud":     {nodes: nodesWith("sim://sim-1/sim-1a/i-0"), detected: "Detected sim from 1 of 1 Node"},
		"one that we do not have": {nodes: nodesWith("aws:///eu-central-1a/i-0"), detected: "Detected aws from 1 of 1 Node"},
		"a provider ID that is no URL": {nodes: nodesWith("bare-metal-7", "gce://project/zone/name"),
			detected: "Detected gce from 1 of 2 Nodes"},
		"no Nodes": {reason: v1beta1.ReasonWaitingForNodes, message: "There are no Nodes yet"},
		"no provider IDs": {nodes: nodesWith("", ""), reason: v1beta1.ReasonWaitingForNodes,
			message: "None of 2 Nodes has a provider ID"},
		"two platforms": {nodes: nodesWith("aws:///a", "azure:///a", "azure:///b", ""),
			reason: v1beta1.ReasonPlatformMixed, message: "Of 4 Nodes these have provider IDs of several platforms: 2 azure, 1 aws."},
	} {
		t.Run(name, func(t *testing.T) {
			found := detect(test.nodes)
			trouble := found.trouble()
			switch {
			case test.detected != "":
				if trouble != nil {
					t.Fatalf("not detected: %s", trouble.message)
				}
				if got := detectedMessage(found.platform()); got != test.detected {
					t.Errorf("got %q, want %q", got, test.detected)
				}
			case trouble == nil:
				t.Error("detected")
			case trouble.reason != test.reason || !strings.Contains(trouble.message, test.message):
				t.Errorf("got %s: %s", trouble.reason, trouble.message)
			case trouble.waits != (test.reason == v1beta1.ReasonWaitingForNodes) || trouble.after == 0:
				t.Errorf("waits %t, checked again after %s", trouble.waits, trouble.after)
			}
		})
	}
}
