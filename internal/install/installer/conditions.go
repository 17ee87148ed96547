package installer

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

type problem struct {
	reason, message string
	// isWait is true if the problem is not an error and ends without an action by a user.
	isWait bool
	// requeueAfter is the time until the next check. If this time is zero, an event triggers the next pass.
	requeueAfter time.Duration
}

func applyFailed(err error) *problem {
	return &problem{reason: v1beta1.ReasonApplyFailed, message: wording.Shorten(err.Error())}
}

func conditionsOf(provider *v1beta1.Provider, status *v1beta1.ProviderStatus, t *problem,
	p process) ([]metav1.Condition, time.Duration) {
	condition := func(of string, is bool, reason, message string) metav1.Condition {
		value := metav1.ConditionFalse
		if is {
			value = metav1.ConditionTrue
		}
		return metav1.Condition{Type: of, Status: value, Reason: reason, Message: wording.Shorten(message),
			ObservedGeneration: provider.Generation}
	}
	available, after := availableOf(provider, p, condition)
	const progressing, degraded = v1beta1.ConditionProgressing, v1beta1.ConditionDegraded
	fine := condition(degraded, false, v1beta1.ReasonAsDesired, "")
	prefix := ""
	if status.Detected != nil {
		prefix = detectedMessage(status.Detected) + ". "
	}
	switch {
	case t != nil && t.isWait:
		return []metav1.Condition{available, condition(progressing, true, t.reason, t.message), fine},
			soonest(after, t.requeueAfter)
	case t != nil:
		return []metav1.Condition{available, condition(progressing, false, t.reason, t.message),
			condition(degraded, true, t.reason, t.message)}, soonest(after, t.requeueAfter)
	case p.deployment == nil:
		return []metav1.Condition{available, condition(progressing, true, v1beta1.ReasonRollingOut,
			prefix+"The objects of the process are being created."), fine}, after
	}
	r := p.rollout()
	progress := condition(progressing, !r.isStuck && !r.complete, r.reason, prefix+r.message)
	if r.isStuck {
		return []metav1.Condition{available, progress, condition(degraded, true, r.reason, r.message)}, after
	}
	return []metav1.Condition{available, progress, fine}, after
}

func availableOf(provider *v1beta1.Provider, p process,
	condition func(of string, is bool, reason, message string) metav1.Condition) (metav1.Condition, time.Duration) {
	const available = v1beta1.ConditionAvailable
	if p.deployment == nil {
		return condition(available, false, v1beta1.ReasonNotInstalled, "The process is not installed."), 0
	}
	if provider.ReplicasOrDefault() == 0 {
		return condition(available, false, v1beta1.ReasonScaledToZero,
			"spec.replicas is 0, so no process works on the machines of this provider."), 0
	}
	count := fmt.Sprintf("%d of %s available", p.deployment.Status.AvailableReplicas,
		replicas(provider.ReplicasOrDefault()))
	switch elsewhere := provider.Spec.Control.KubeconfigSecretRef != nil; {
	case p.deployment.Status.AvailableReplicas == 0:
		return condition(available, false, v1beta1.ReasonMinimumReplicasUnavailable, count+"."), 0
	case elsewhere:
		return condition(available, true, v1beta1.ReasonMinimumReplicasAvailable,
			count+". The Lease of the leader is in another control cluster."), 0
	case p.leader == "":
		return condition(available, false, v1beta1.ReasonNoLeader, count+", and none of them is the leader."), leaderDelay
	}
	return condition(available, true, v1beta1.ReasonMinimumReplicasAvailable, count+". Pod "+p.leader+" is the leader."), 0
}

func unchanged(was, is *v1beta1.ProviderStatus) bool { return equality.Semantic.DeepEqual(was, is) }
