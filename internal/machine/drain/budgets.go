package drain

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/internal/platform/wording"
)

type assessment struct {
	budgets []string
	// neverReason explains why these budgets can never allow the eviction. If the budgets may allow the eviction at
	// some time, neverReason is empty.
	neverReason string
}

func assess(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) assessment {
	var v assessment
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || budget.Namespace != pod.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		v.budgets = append(v.budgets, budget.Name)
		if v.neverReason == "" {
			v.neverReason = neverAllows(budget)
		}
	}
	slices.Sort(v.budgets)
	if len(v.budgets) > 1 {
		v.neverReason = "the API server never evicts a pod that is selected by more than one budget"
	}
	return v
}

// neverAllows returns why a budget does not allow an eviction even if all pods are healthy. The reason is empty if the
// budget can allow the eviction, or if its latest version was not processed yet.
func neverAllows(budget *policyv1.PodDisruptionBudget) string {
	status := budget.Status
	if status.ObservedGeneration < budget.Generation || status.ExpectedPods == 0 ||
		status.DesiredHealthy < status.ExpectedPods {
		return ""
	}
	if limit := budget.Spec.MaxUnavailable; limit != nil {
		return "maxUnavailable is " + limit.String()
	}
	if limit := budget.Spec.MinAvailable; limit != nil {
		return fmt.Sprintf("minAvailable is %s, of %s", limit.String(), wording.Count(status.ExpectedPods, "pod"))
	}
	return fmt.Sprintf("the budget needs all of its %s", wording.Count(status.ExpectedPods, "pod"))
}

// explain adds the PodDisruptionBudgets of a pod to the result of a failed eviction. If the eviction failed for
// another reason, explain adds the budgets only if several budgets select the pod.
func explain(try *Attempt, result result, v assessment) {
	if result != blocked && len(v.budgets) < 2 {
		return
	}
	try.IsRefused, try.Budgets = true, v.budgets
	if v.neverReason != "" {
		try.NeverAllowed, try.Explanation = true, v.neverReason
	}
}

func (c *Controller) onBudgets() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	changed := func(o client.Object) {
		if budget, ok := o.(*policyv1.PodDisruptionBudget); ok {
			c.budgetChanged(budget)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { changed(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { changed(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			c.retry(client.ObjectKeyFromObject(e.Object), math.MaxInt)
		},
	}
}

func (c *Controller) budgetChanged(budget *policyv1.PodDisruptionBudget) {
	if budget.Status.ObservedGeneration < budget.Generation || budget.Status.DisruptionsAllowed <= 0 {
		return
	}
	c.retry(client.ObjectKeyFromObject(budget), int(budget.Status.DisruptionsAllowed))
}

func (c *Controller) retry(budget types.NamespacedName, n int) {
	for _, machine := range c.records.retryBlockedBy(budget, n) {
		c.work.Enqueue(machine)
	}
}

// retryBlockedBy marks n pods for another attempt and returns their machines. retryBlockedBy chooses the pods that
// the budget has blocked for the longest time. The budget would refuse any further evictions.
func (m *records) retryBlockedBy(budget types.NamespacedName, n int) []types.NamespacedName {
	type blockedPod struct {
		Blocker
		machine types.NamespacedName
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var pods []blockedPod
	for machine, r := range m.machines {
		for _, b := range r.drained.Blockers {
			if b.Pod.Namespace == budget.Namespace && len(b.Budgets) == 1 && b.Budgets[0] == budget.Name {
				pods = append(pods, blockedPod{b, machine})
			}
		}
	}
	slices.SortFunc(pods, func(a, b blockedPod) int {
		return cmp.Or(a.FirstFailure.Compare(b.FirstFailure), cmp.Compare(a.UID, b.UID))
	})
	var machines []types.NamespacedName
	for _, pod := range pods[:min(n, len(pods))] {
		r := m.machines[pod.machine]
		if r.triggeredPods == nil {
			r.triggeredPods = map[types.UID]bool{}
		}
		r.triggeredPods[pod.UID] = true
		machines = append(machines, pod.machine)
	}
	return machines
}
