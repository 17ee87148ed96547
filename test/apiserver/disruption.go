package apiserver

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deletionTimeout is the maximum time for which an evicted pod counts as disrupted before its deletion begins.
const deletionTimeout = 2 * time.Minute

func (s *Server) budgetStatus(r *record) map[string]any {
	budget := r.object.(*policyv1.PodDisruptionBudget)
	status := budget.Status.DeepCopy()
	now := s.timestamp()
	var pods []*corev1.Pod
	healthy := 0
	disrupted := map[string]metav1.Time{}
	all := s.tables[s.registry.pods.index]
	from, _ := all.find(client.ObjectKey{Namespace: r.key.Namespace})
	for _, p := range all[from:] {
		pod := p.object.(*corev1.Pod)
		if pod.Namespace != r.key.Namespace {
			break
		}
		if !selects(budget, pod) {
			continue
		}
		pods = append(pods, pod)
		if pod.DeletionTimestamp != nil {
			continue
		}
		if at, ok := status.DisruptedPods[pod.Name]; ok && now.Sub(at.Time) < deletionTimeout {
			disrupted[pod.Name] = at
			continue
		}
		if podReady(pod) {
			healthy++
		}
	}
	expected, desired, ok := s.expectedPods(budget, pods)
	if !ok {
		return failedStatus(status, now)
	}
	allowed := 0
	if expected > 0 {
		allowed = max(0, healthy-desired)
	}
	status.ObservedGeneration = budget.Generation
	status.ExpectedPods, status.CurrentHealthy = int32(expected), int32(healthy)
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
	return statusContent(status)
}

func failedStatus(status *policyv1.PodDisruptionBudgetStatus, now metav1.Time) map[string]any {
	status.DisruptionsAllowed = 0
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		ObservedGeneration: status.ObservedGeneration, LastTransitionTime: now,
	})
	return statusContent(status)
}

// expectedPods returns the expected number of pods and the desired number of healthy pods of a budget. A fixed
// minAvailable counts all existing pods. A percentage or maxUnavailable counts the replicas of the pods' controllers,
// and ok is false if a controller does not exist.
func (s *Server) expectedPods(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, desired int,
	ok bool) {
	minAvailable, maxUnavailable := budget.Spec.MinAvailable, budget.Spec.MaxUnavailable
	if maxUnavailable == nil && (minAvailable == nil || minAvailable.Type == intstr.Int) {
		if minAvailable != nil {
			desired = minAvailable.IntValue()
		}
		return len(pods), desired, true
	}
	counted := map[types.UID]bool{}
	for _, pod := range pods {
		controller := metav1.GetControllerOfNoCopy(pod)
		if controller == nil || counted[controller.UID] {
			continue
		}
		counted[controller.UID] = true
		owner := s.live[controller.UID]
		if owner.record == nil {
			return 0, 0, false
		}
		spec, _ := owner.record.body["spec"].(map[string]any)
		replicas, _ := spec["replicas"].(int64)
		expected += int(replicas)
	}
	if maxUnavailable != nil {
		return expected, max(0, expected-scaled(maxUnavailable, expected)), true
	}
	return expected, scaled(minAvailable, expected), true
}

func statusContent(status *policyv1.PodDisruptionBudgetStatus) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		// The status is in the store, so the conversion cannot fail.
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
