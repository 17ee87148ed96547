package apiserver

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// disruptionPatience is how long an evicted pod counts as gone while it is still there and not being deleted.
const disruptionPatience = 2 * time.Minute

// budgetStatus returns what the disruption controller would write of a budget. Percentages and maxUnavailable refer to
// the pods that there are, where the real one asks the pods' controllers how many there should be.
func (s *Server) budgetStatus(r *record) map[string]any {
	budget := r.object.(*policyv1.PodDisruptionBudget)
	status := budget.Status.DeepCopy()
	now := s.timestamp()
	var pods, healthy int
	disrupted := map[string]metav1.Time{}
	all := s.tables[s.registry.pods.index]
	from, _ := all.find(client.ObjectKey{Namespace: r.key.Namespace})
	for _, p := range all[from:] {
		pod := p.object.(*corev1.Pod)
		if pod.Namespace != r.key.Namespace {
			break
		}
		if !selects(budget, pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		pods++
		if pod.DeletionTimestamp != nil {
			continue
		}
		if at, ok := status.DisruptedPods[pod.Name]; ok && now.Sub(at.Time) < disruptionPatience {
			disrupted[pod.Name] = at
			continue
		}
		if ready(pod) {
			healthy++
		}
	}
	desired := pods
	switch {
	case budget.Spec.MaxUnavailable != nil:
		desired = max(0, pods-scaled(budget.Spec.MaxUnavailable, pods))
	case budget.Spec.MinAvailable != nil:
		desired = scaled(budget.Spec.MinAvailable, pods)
	}
	allowed := 0
	if pods > 0 {
		allowed = max(0, healthy-desired)
	}
	status.ObservedGeneration = budget.Generation
	status.ExpectedPods, status.CurrentHealthy = int32(pods), int32(healthy)
	status.DesiredHealthy, status.DisruptionsAllowed = int32(desired), int32(allowed)
	status.DisruptedPods = nil
	if len(disrupted) > 0 {
		status.DisruptedPods = maps.Clone(disrupted)
	}
	condition := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason,
		ObservedGeneration: budget.Generation, LastTransitionTime: now,
	}
	if allowed == 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		// It is made of a status that was stored.
		panic(err)
	}
	return content
}

func scaled(n *intstr.IntOrString, of int) int {
	value, err := intstr.GetScaledValueFromIntOrPercent(n, of, true)
	if err != nil {
		return of
	}
	return value
}
