package host

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// patchedStatus is a status as a strategic merge patch has it.
type patchedStatus struct {
	*corev1.PodStatus
	Conditions []patchedCondition `json:"conditions"`
}

// patchedCondition takes off the reason and the message that it does not have:
// what a patch leaves out stays.
type patchedCondition struct {
	corev1.PodCondition
	Reason  *string `json:"reason"`
	Message *string `json:"message"`
}

// movedStatus also replaces the addresses that the pod had.
type movedStatus struct {
	patchedStatus
	PodIP  *string `json:"podIP"`
	PodIPs []any   `json:"podIPs"`
}

// replaceDirective is an entry that has a list replace the one before.
var replaceDirective = map[string]string{"$patch": "replace"}

// patch is the status for the API server. It names the UID: another pod of the
// same name must not get it.
func (p *pod) patch(hostIP string) ([]byte, error) {
	status := p.status(hostIP)
	next := patchedStatus{PodStatus: status}
	for _, c := range status.Conditions {
		next.Conditions = append(next.Conditions, patchedCondition{c, text(c.Reason), text(c.Message)})
	}
	var patched any = next
	if p.moved {
		moved := movedStatus{patchedStatus: next, PodIP: text(status.PodIP), PodIPs: []any{replaceDirective}}
		for _, ip := range status.PodIPs {
			moved.PodIPs = append(moved.PodIPs, ip)
		}
		patched = moved
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.uid},
		"status":   patched,
	})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	return data, nil
}

// text is null for an empty string.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
