package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/wording"
)

// assessment is what the PodDisruptionBudgets of a pod say about its eviction.
type assessment struct {
	// budgets that select the pod.
	budgets []string
	// never says why they can never allow the eviction, empty if they can.
	never string
}

// assess judges a pod by the budgets of its namespace.
func assess(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) assessment {
	var v assessment
	for i := range budgets {
		budget := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || budget.Namespace != pod.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		v.budgets = append(v.budgets, budget.Name)
		if v.never == "" {
			v.never = neverAllows(budget)
		}
	}
	slices.Sort(v.budgets)
	if len(v.budgets) > 1 {
		v.never = "the API server evicts no pod that is selected by more than one"
	}
	return v
}

// neverAllows says why a budget cannot allow the eviction of a healthy pod, however healthy the others are. It is empty
// if it can, or if the disruption controller has not yet seen the budget as it is.
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
	return fmt.Sprintf("it needs all of its %s", wording.Count(status.ExpectedPods, "pod"))
}

// budgetsByNamespace reads the budgets of a namespace at most once.
type budgetsByNamespace struct {
	reader client.Reader
	read   map[string][]policyv1.PodDisruptionBudget
}

func (b *budgetsByNamespace) in(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	if budgets, done := b.read[namespace]; done {
		return budgets, nil
	}
	var list policyv1.PodDisruptionBudgetList
	if err := b.reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets in namespace %q: %w", namespace, err)
	}
	if b.read == nil {
		b.read = map[string][]policyv1.PodDisruptionBudget{}
	}
	b.read[namespace] = list.Items
	return list.Items, nil
}

// rejections knows which pods are held up by which budget, so that a budget that allows evictions again finds the
// drains that wait for it, whatever their number.
type rejections struct {
	mu        sync.Mutex
	byBudget  map[types.NamespacedName]map[types.UID]refused
	byMachine map[types.NamespacedName]map[types.UID]types.NamespacedName // the budget of each refused pod
}

// refused is a pod that a budget holds up.
type refused struct {
	machine types.NamespacedName
	pod     types.UID
	since   time.Time
}

// set replaces what is known of a machine: the budget of each of its refused pods.
func (r *rejections) set(machine types.NamespacedName, pods map[types.UID]types.NamespacedName, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.byMachine[machine]
	for pod, budget := range before {
		if pods[pod] != budget {
			delete(r.byBudget[budget], pod)
			if len(r.byBudget[budget]) == 0 {
				delete(r.byBudget, budget)
			}
		}
	}
	for pod, budget := range pods {
		if before[pod] == budget {
			continue
		}
		if r.byBudget == nil {
			r.byBudget = map[types.NamespacedName]map[types.UID]refused{}
		}
		if r.byBudget[budget] == nil {
			r.byBudget[budget] = map[types.UID]refused{}
		}
		r.byBudget[budget][pod] = refused{machine: machine, pod: pod, since: now}
	}
	if len(pods) == 0 {
		delete(r.byMachine, machine)
		return
	}
	if r.byMachine == nil {
		r.byMachine = map[types.NamespacedName]map[types.UID]types.NamespacedName{}
	}
	r.byMachine[machine] = pods
}

// longest returns the n pods that the budget has held up for the longest time. More would only be refused again.
func (r *rejections) longest(budget types.NamespacedName, n int) []refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pods []refused
	for _, pod := range r.byBudget[budget] {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b refused) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.pod, b.pod))
	})
	return pods[:min(n, len(pods))]
}
