package machine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"
	"machinist.dev/machinist/internal/platform/index"
)

// requestGrace is how long a launched Machine may have no Node before its condition reports the progress of the
// kubelet. Most instances need less time, and cause no additional write.
const requestGrace = 3 * time.Minute

// requestsKept is slightly less than the hour after which Kubernetes deletes approved certificate requests.
const requestsKept = 50 * time.Minute

// joinProgress returns the progress of a kubelet without a Node: whether it has requested a certificate, and the state
// of this request. Before requestGrace, it returns "". After requestsKept, it also returns "" if no request is found,
// because Kubernetes may have deleted the request.
func (p *pass) joinProgress(ctx context.Context) string {
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	name := index.NodeName(p.machine)
	if launched == nil || launched.Status != metav1.ConditionTrue || name == "" {
		return ""
	}
	if left := launched.LastTransitionTime.Add(requestGrace).Sub(p.now); left > 0 {
		if p.machine.Status.FailureReason == "" {
			p.requeueIn(left)
		}
		return ""
	}
	requests, err := p.joins.Requests(ctx, name)
	if err != nil {
		return ""
	}
	var last kubeletcsr.JoinRequest
	for _, r := range requests {
		if r.RequestTime.Before(p.machine.CreationTimestamp.Time) {
			continue // This request came from another instance with the same name.
		}
		if last.Name == "" || r.RequestTime.After(last.RequestTime) {
			last = r
		}
	}
	if last.Name == "" && p.now.Sub(launched.LastTransitionTime.Time) > requestsKept {
		return "" // Kubernetes may have deleted the request.
	}
	if last.Name == "" {
		return fmt.Sprintf("No kubelet has requested a certificate for a node named %s. Check the console of the instance.", name)
	}
	switch last.Outcome {
	case kubeletcsr.OutcomeIssued:
		return fmt.Sprintf("The kubelet received its certificate (%s), but has not registered a node. Check the kubelet's log.", last.Name)
	case kubeletcsr.OutcomeUnsigned:
		return fmt.Sprintf("The certificate request %s of the kubelet is approved, but no signer has signed it.", last.Name)
	case kubeletcsr.OutcomeRefused:
		return fmt.Sprintf("The certificate request %s of the kubelet was denied.", last.Name)
	}
	return fmt.Sprintf("The certificate request %s of the kubelet is not approved yet.", last.Name)
}
