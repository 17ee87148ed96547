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

// assessment is what the PodDisruptionBudgets of a pod mean for its eviction.
type assessment struct {
	// budgets are the names of the budgets that select the pod.
	budgets []string
	// never explains why the budgets can never allow the eviction. It is empty if they can allow it.
	never string
}

// assess returns the assessment of a pod by the budgets of its namespace.
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
		v.never = "the API server never evicts a pod that is selected by more than one budget"
	}
	return v
}

// neverAllows returns why a budget cannot allow the eviction of a healthy pod, however healthy the other pods are. It
// is empty if the budget can allow it, or if the disruption controller has not processed the current budget yet.
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

// budgetsByNamespace reads the budgets of each namespace at most once.
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

// rejections tracks which pods are blocked by which budget. When a budget allows evictions again, it finds the drains
// that wait for the budget without a search through all drains.
type rejections struct {
	mu        sync.Mutex
	byBudget  map[types.NamespacedName]map[types.UID]refused
	byMachine map[types.NamespacedName]map[types.UID]types.NamespacedName // the budget of each refused pod
}

// refused is a pod that a budget blocks.
type refused struct {
	machine types.NamespacedName
	pod     types.UID
	since   time.Time
}

// set replaces what is known about a machine: the budget of each of its refused pods.
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

// longestBlocked returns the n pods that the budget has blocked for the longest time. The budget would refuse further
// pods again.
func (r *rejections) longestBlocked(budget types.NamespacedName, n int) []refused {
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
