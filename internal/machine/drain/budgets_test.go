package drain

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestAssess(t *testing.T) {
	pod := aPod("shop/web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} })
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget := func(name string, selector *metav1.LabelSelector,
		edit func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
		b := policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 2},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 3, DesiredHealthy: 2,
				CurrentHealthy: 2},
		}
		if edit != nil {
			edit(&b)
		}
		return b
	}
	type edit = func(*policyv1.PodDisruptionBudget)
	limit := func(desired int32, minAvailable, maxUnavailable string) edit {
		return func(b *policyv1.PodDisruptionBudget) {
			b.Status.DesiredHealthy = desired
			if minAvailable != "" {
				value := intstr.Parse(minAvailable)
				b.Spec.MinAvailable = &value
			}
			if maxUnavailable != "" {
				value := intstr.Parse(maxUnavailable)
				b.Spec.MaxUnavailable = &value
			}
		}
	}
	tests := []struct {
		name    string
		budgets []policyv1.PodDisruptionBudget
		want    assessment
	}{
		{"none", nil, assessment{}},
		{"one that allows no disruption now", []policyv1.PodDisruptionBudget{budget("web", web, nil)},
			assessment{budgets: []string{"web"}}},
		{"budgets that do not select the pod", []policyv1.PodDisruptionBudget{
			budget("db", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, limit(3, "", "0")),
			budget("elsewhere", web, func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }),
			budget("unset", nil, nil),
			budget("broken", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
				Operator: "Like"}}}, nil),
		}, assessment{}},
		{"an empty selector selects all", []policyv1.PodDisruptionBudget{budget("all", &metav1.LabelSelector{}, nil)},
			assessment{budgets: []string{"all"}}},
		{"maxUnavailable 0", []policyv1.PodDisruptionBudget{budget("web", web, limit(3, "", "0"))},
			assessment{[]string{"web"}, "maxUnavailable is 0"}},
		{"maxUnavailable 0%", []policyv1.PodDisruptionBudget{budget("web", web, limit(3, "", "0%"))},
			assessment{[]string{"web"}, "maxUnavailable is 0%"}},
		{"minAvailable equal to the number of pods", []policyv1.PodDisruptionBudget{budget("web", web, limit(3, "3", ""))},
			assessment{[]string{"web"}, "minAvailable is 3, of 3 pods"}},
		{"minAvailable above the number of pods", []policyv1.PodDisruptionBudget{budget("web", web, limit(5, "5", ""))},
			assessment{[]string{"web"}, "minAvailable is 5, of 3 pods"}},
		{"minAvailable 100%", []policyv1.PodDisruptionBudget{budget("web", web, limit(3, "100%", ""))},
			assessment{[]string{"web"}, "minAvailable is 100%, of 3 pods"}},
		{"not processed by the disruption controller yet",
			[]policyv1.PodDisruptionBudget{budget("web", web, func(b *policyv1.PodDisruptionBudget) {
				limit(3, "", "0")(b)
				b.Status.ObservedGeneration = 1
			})}, assessment{budgets: []string{"web"}}},
		{"two budgets", []policyv1.PodDisruptionBudget{budget("web-2", web, nil), budget("web-1", web, nil)},
			assessment{[]string{"web-1", "web-2"}, "the API server never evicts a pod that is selected by more than one budget"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, assess(&pod, test.budgets), cmp.AllowUnexported(assessment{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPodsThatWaitedLongestForABudgetAreRetried(t *testing.T) {
	budget := types.NamespacedName{Namespace: "shop", Name: "web"}
	blocker := func(pod string, since time.Duration, budgets ...string) Blocker {
		namespace, name, _ := strings.Cut(pod, "/")
		return Blocker{types.NamespacedName{Namespace: namespace, Name: name}, types.UID(name), "",
			Attempt{Failures: 1, FirstFailure: at(since), IsRefused: true, Budgets: budgets}}
	}
	for n, want := range map[int]string{0: "[]", 2: "[m2 m1]", math.MaxInt: "[m2 m1 m1]"} {
		var m records
		for machine, blocked := range map[string][]Blocker{
			"m1": {blocker("shop/web-0", 3*time.Second, "web"), blocker("shop/web-1", 2*time.Second, "web"),
				blocker("shop/db-1", 0, "db"), blocker("shop/both", 0, "db", "web"), blocker("other/web", 0, "web")},
			"m2": {blocker("shop/web-2", time.Second, "web")},
		} {
			r, _ := m.admitDrain(request(machine))
			m.setOutcome(&r.drained, Outcome{Blockers: blocked})
		}
		var names []string
		for _, machine := range m.retryBlockedBy(budget, n) {
			names = append(names, machine.Name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%d pods: got machines %s, want %s", n, got, want)
		}
		if r, _, _ := m.task(key("m1")); n == 2 {
			if got := m.takeTriggered(r); len(got) != 1 || !got["web-1"] {
				t.Errorf("got %v to retry, want web-1", got)
			}
			if got := m.takeTriggered(r); got != nil {
				t.Errorf("got %v to retry a second time", got)
			}
		}
	}
}
