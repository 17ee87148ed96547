package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

func (s *Server) evict(k *kind, req request, old *record, eviction *policyv1.Eviction) error {
	if eviction.Name != "" && eviction.Name != old.key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("name in URL does not match name in Eviction object: %s", eviction.Name))
	}
	if err := s.checkNamespace(k, old.key.Namespace, old.key.Name); err != nil {
		return err
	}
	opts := eviction.DeleteOptions.DeepCopy()
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	pod := old.object.(*corev1.Pod)
	if !canIgnoreBudget(pod) {
		budget, err := s.budgetOf(pod)
		if err != nil {
			return err
		}
		if budget != nil {
			if err := s.checkAndDecrement(req, budget, pod); err != nil {
				return err
			}
		}
	}
	marked, err := s.markEvicted(k, req, old)
	if err != nil {
		return err
	}
	return s.delete(k, req, marked, opts)
}

// markEvicted sets the condition DisruptionTarget of a pod. The real server also sets the condition if the
// preconditions of the deletion are not met.
func (s *Server) markEvicted(k *kind, req request, old *record) (*record, error) {
	pod := old.object.(*corev1.Pod)
	conditions := slices.Clone(pod.Status.Conditions)
	mark := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason:  "EvictionByEvictionAPI",
		Message: "Eviction API: evicting", LastTransitionTime: s.timestamp(),
		ObservedGeneration: pod.Status.ObservedGeneration}
	i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == mark.Type })
	switch {
	case req.dryRun:
		return old, nil
	case i < 0:
		conditions = append(conditions, mark)
	default:
		if conditions[i].Status == mark.Status {
			mark.LastTransitionTime = conditions[i].LastTransitionTime
		}
		conditions[i] = mark
	}
	status := pod.Status
	status.Conditions = conditions
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, fmt.Errorf("encode the status of pod %s: %w", old.key, err)
	}
	return s.setStatus(k, req, old, content)
}

func canIgnoreBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

func (s *Server) budgetOf(pod *corev1.Pod) (*record, error) {
	var found *record
	for _, r := range s.tables[s.registry.budgets.index] {
		budget := r.object.(*policyv1.PodDisruptionBudget)
		if budget.Namespace != pod.Namespace || !selects(budget, pod) {
			continue
		}
		if found != nil {
			// The real server also omits the reason in this error.
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
				Code:    http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
		}
		found = r
	}
	return found, nil
}

func selects(budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

func (s *Server) checkAndDecrement(req request, r *record, pod *corev1.Pod) error {
	budget := r.object.(*policyv1.PodDisruptionBudget)
	if !podReady(pod) {
		always := budget.Spec.UnhealthyPodEvictionPolicy != nil &&
			*budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
		if always || budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0 {
			return nil
		}
	}
	tooManyRequests := func(message string, retryAfter int) error {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
		return err
	}
	const retryAfter = 10 // seconds
	switch {
	case budget.Status.ObservedGeneration < budget.Generation:
		return tooManyRequests(
			fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name), retryAfter)
	case budget.Status.DisruptionsAllowed <= 0:
		return tooManyRequests(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy), 0)
	case req.dryRun:
		return nil
	}
	old, _ := r.body["status"].(map[string]any)
	status := maps.Clone(old)
	status["disruptionsAllowed"] = int64(budget.Status.DisruptionsAllowed - 1)
	given, _ := status["disruptedPods"].(map[string]any)
	disrupted := maps.Clone(given)
	if disrupted == nil {
		disrupted = map[string]any{}
	}
	disrupted[pod.Name] = s.timestamp().UTC().Format(time.RFC3339)
	status["disruptedPods"] = disrupted
	_, err := s.setStatus(s.registry.budgets, req, r, status)
	return err
}

func (s *Server) setStatus(k *kind, req request, old *record, status map[string]any) (*record, error) {
	body := maps.Clone(old.body)
	body["status"] = status
	req.sub = "status"
	meta := *old.meta
	return s.replace(k, req, old, &meta, body, old.managed)
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
