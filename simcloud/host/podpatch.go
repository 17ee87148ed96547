package host

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// patchedStatus is a status for a strategic merge patch.
type patchedStatus struct {
	*corev1.PodStatus
	Conditions []patchedCondition `json:"conditions"`
}

// patchedCondition sets an empty reason and message to null, because a patch keeps the fields that it does not contain.
type patchedCondition struct {
	corev1.PodCondition
	Reason  *string `json:"reason"`
	Message *string `json:"message"`
}

// movedStatus also replaces the addresses of the pod.
type movedStatus struct {
	patchedStatus
	PodIP  *string `json:"podIP"`
	PodIPs []any   `json:"podIPs"`
}

// replaceDirective makes a strategic merge patch replace the whole list.
var replaceDirective = map[string]string{"$patch": "replace"}

// patch returns a patch for the status of the pod. The patch contains the UID of the pod. So the API server refuses the
// patch if another pod with the same name has replaced this pod.
func (p *pod) patch(hostIP string) ([]byte, error) {
	status := p.status(hostIP)
	next := patchedStatus{PodStatus: status}
	for _, c := range status.Conditions {
		next.Conditions = append(next.Conditions, patchedCondition{c, text(c.Reason), text(c.Message)})
	}
	var patched any = next
	if p.addressChanged {
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
		return nil, fmt.Errorf("encode the pod status: %w", err)
	}
	return data, nil
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
