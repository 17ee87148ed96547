package interruption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DefaultLead is the time that an instance is expected to live after a notice that does not name a time. DefaultLead
// is the shortest notice that a large cloud gives.
const DefaultLead = 30 * time.Second

// Signal describes how a Node announces that the cloud will reclaim its instance: with a condition or with a taint.
type Signal struct {
	// Condition is the type of a condition whose status True announces the interruption. If Causes is not empty, the
	// reason of the condition must begin with one of the Causes. A signal has either a Condition or a Taint.
	Condition corev1.NodeConditionType
	Causes    []string
	// Taint is the key of the taint. The value and the effect of the taint do not matter.
	Taint string
	// Reason is the value for the field reason of the condition InterruptionNotice.
	Reason string
	// LeadTime is the time between the signal and the removal of the instance.
	LeadTime time.Duration
}

// Notice describes an interruption that a condition or taint of a Node announces.
type Notice struct {
	Reason string
	// Source describes the condition or taint in messages.
	Source string
	Lead   time.Duration
}

// Signals are the signals to which the controller reacts.
type Signals []Signal

// KnownSignals returns the signals of common termination handlers.
//
// The following signals are omitted on purpose, because they only give advice or do not end the instance:
//
//   - The taints aws-node-termination-handler/rebalance-recommendation and
//     aws-node-termination-handler/scheduled-maintenance appear long before the instance is affected.
//   - Some events of Azure freeze, reboot or move a machine. The machine continues to run after these events.
//   - A cloud-controller-manager sets the taint node.cloudprovider.kubernetes.io/shutdown only on instances that are
//     already switched off.
//   - Autoscalers set taints on nodes that they drain. The autoscalers delete these nodes themselves.
func KnownSignals() Signals {
	return Signals{
		// AWS Node Termination Handler. EC2 announces a spot interruption two minutes ahead. A lifecycle hook of a
		// scaling group also waits at least two minutes by default.
		{Taint: "aws-node-termination-handler/spot-itn", Reason: v1beta1.ReasonPreemptionNotice, LeadTime: 2 * time.Minute},
		{Taint: "aws-node-termination-handler/asg-lifecycle-termination", Reason: v1beta1.ReasonTerminationNotice,
			LeadTime: 2 * time.Minute},
		// The taint is set by GKE, and by the termination handler for GCE.
		{Taint: "cloud.google.com/impending-node-termination", Reason: v1beta1.ReasonPreemptionNotice,
			LeadTime: 30 * time.Second},
		// This condition of node-problem-detector in AKS reports all scheduled events. The reason of the condition
		// names the event.
		{Condition: "VMEventScheduled", Causes: []string{"Preempt"}, Reason: v1beta1.ReasonPreemptionNotice,
			LeadTime: 30 * time.Second},
		{Condition: "VMEventScheduled", Causes: []string{"Terminate"}, Reason: v1beta1.ReasonTerminationNotice,
			LeadTime: 5 * time.Minute},
		// The termination handlers of OpenShift's Machine API set this condition in all clouds.
		{Condition: "Terminating", Reason: v1beta1.ReasonPreemptionNotice, LeadTime: DefaultLead},
	}
}

// Find returns the interruption that the given Node announces. If the Node announces several interruptions, the
// result is the notice with the shortest lead time.
func (all Signals) Find(node *corev1.Node) (notice Notice, announced bool) {
	if node == nil {
		return Notice{}, false
	}
	for _, s := range all {
		source := s.shownBy(node)
		if source != "" && (!announced || s.LeadTime < notice.Lead) {
			notice, announced = Notice{Reason: s.Reason, Source: source, Lead: s.LeadTime}, true
		}
	}
	return notice, announced
}

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
