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
func TestDetectPlatform(t *testing.T) {
	for name, test := range map[string]struct {
		nodes    []corev1.Node
		detected string // "" if not detected
		reason   string
		message  string
	}{
		"one platform": {nodes: nodesWith("azure:///subscriptions/a", "azure:///subscriptions/b"),
			detected: "Detected azure from 2 of 2 Nodes"},
		"a Node without a provider ID": {nodes: nodesWith("azure:///a", "", "azure:///b"),
			detected: "Detected azure from 2 of 3 Nodes"},
		"the simulated cloud":  {nodes: nodesWith("sim://sim-1/sim-1a/i-0"), detected: "Detected sim from 1 of 1 Node"},
		"unsupported platform": {nodes: nodesWith("aws:///eu-central-1a/i-0"), detected: "Detected aws from 1 of 1 Node"},
		"a provider ID that is not a URL": {nodes: nodesWith("bare-metal-7", "gce://project/zone/name"),
			detected: "Detected gce from 1 of 2 Nodes"},
		"no Nodes": {reason: v1beta1.ReasonWaitingForNodes, message: "There are no Nodes yet"},
		"no provider IDs": {nodes: nodesWith("", ""), reason: v1beta1.ReasonWaitingForNodes,
			message: "None of 2 Nodes has a provider ID"},
		"two platforms": {nodes: nodesWith("aws:///a", "azure:///a", "azure:///b", ""),
			reason:  v1beta1.ReasonPlatformMixed,
			message: "The provider IDs of the 4 Nodes belong to several platforms: 2 azure, 1 aws."},
	} {
		t.Run(name, func(t *testing.T) {
			found := detect(test.nodes)
			problem := found.problem()
			switch {
			case test.detected != "":
				if problem != nil {
					t.Fatalf("not detected: %s", problem.message)
				}
				if got := detectedMessage(found.platform()); got != test.detected {
					t.Errorf("got %q, want %q", got, test.detected)
				}
			case problem == nil:
				t.Error("detected")
			case problem.reason != test.reason || !strings.Contains(problem.message, test.message):
				t.Errorf("got %s: %s", problem.reason, problem.message)
			case problem.isWait != (test.reason == v1beta1.ReasonWaitingForNodes) || problem.requeueAfter == 0:
				t.Errorf("waits %t, checked again after %s", problem.isWait, problem.requeueAfter)
			}
		})
	}
}
