package interruption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DefaultLead is how long an instance is expected to live after a notice of unknown length. It is the shortest that the
// large clouds give.
const DefaultLead = 30 * time.Second

// Signal is one way in which a Node announces that the cloud is about to reclaim its instance.
type Signal struct {
	// Condition is the type of a condition that is True then, empty for a taint. If Causes are given, its reason must
	// begin with one of them.
	Condition corev1.NodeConditionType
	Causes    []string
	// Taint is the key of a taint, whatever its value and effect.
	Taint string
	// Reason of the condition InterruptionNotice that follows.
	Reason string
	// Lead is how long the instance still lives when the signal appears.
	Lead time.Duration
}

// Notice is what a Node says.
type Notice struct {
	Reason string
	// Source names the condition or taint, for people.
	Source string
	Lead   time.Duration
}

// Signals are those that count.
type Signals []Signal

// Known returns the signals of the common termination handlers.
//
// Missing on purpose is what only advises or does not end the instance: the taints
// aws-node-termination-handler/rebalance-recommendation and aws-node-termination-handler/scheduled-maintenance, which
// come long before anything happens, if it does; events of Azure that freeze, reboot or move a machine, which comes
// back; the taint node.cloudprovider.kubernetes.io/shutdown, with which a cloud-controller-manager marks instances
// that are off already; and taints of autoscalers, which delete by themselves what they drain.
func Known() Signals {
	return Signals{
		// AWS Node Termination Handler. EC2 announces a spot interruption two minutes before; a lifecycle hook of a scaling
		// group waits for at least as long unless somebody configured less.
		{Taint: "aws-node-termination-handler/spot-itn", Reason: v1beta1.ReasonPreemptionNotice, Lead: 2 * time.Minute},
		{Taint: "aws-node-termination-handler/asg-lifecycle-termination", Reason: v1beta1.ReasonTerminationNotice,
			Lead: 2 * time.Minute},
		// GKE, and the termination handler for GCE.
		{Taint: "cloud.google.com/impending-node-termination", Reason: v1beta1.ReasonPreemptionNotice,
			Lead: 30 * time.Second},
		// node-problem-detector as AKS runs it: its condition stands for any scheduled event, its reason says which.
		{Condition: "VMEventScheduled", Causes: []string{"Preempt"}, Reason: v1beta1.ReasonPreemptionNotice,
			Lead: 30 * time.Second},
		{Condition: "VMEventScheduled", Causes: []string{"Terminate"}, Reason: v1beta1.ReasonTerminationNotice,
			Lead: 5 * time.Minute},
		// The termination handlers of the Machine API of OpenShift, for all of its clouds.
		{Condition: "Terminating", Reason: v1beta1.ReasonPreemptionNotice, Lead: DefaultLead},
	}
}

// Of returns the notice that the Node shows; of several the one that leaves the least time.
func (all Signals) Of(node *corev1.Node) (notice Notice, announced bool) {
	if node == nil {
		return Notice{}, false
	}
	for _, s := range all {
		source := s.shownBy(node)
		if source != "" && (!announced || s.Lead < notice.Lead) {
			notice, announced = Notice{Reason: s.Reason, Source: source, Lead: s.Lead}, true
		}
	}
	return notice, announced
}

// shownBy names what of the Node is this signal, empty if it does not show it.
func (s Signal) shownBy(node *corev1.Node) string {
	if s.Taint != "" {
		for _, t := range node.Spec.Taints {
			if t.Key == s.Taint {
				return fmt.Sprintf("taint %s of node %s", t.Key, node.Name)
			}
		}
		return ""
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type != s.Condition || c.Status != corev1.ConditionTrue {
			continue
		}
		if len(s.Causes) > 0 && !slices.ContainsFunc(s.Causes, func(cause string) bool {
			return strings.HasPrefix(c.Reason, cause)
		}) {
			continue
		}
		return fmt.Sprintf("condition %s (%s) of node %s", c.Type, c.Reason, node.Name)
	}
	return ""
}
