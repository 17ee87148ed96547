package drain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: evictions-keep-budgets.
func TestRefusedPodIsNamedAndRetriedWithBackoff(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.evictionErrors["web"] = refusedBy("web", 0)
	b.drain("m1")
	var tried []time.Duration
	for b.clock.Now().Before(at(3 * time.Minute)) {
		next := b.runPass("m1")
		for range b.evictions {
			tried = append(tried, b.clock.Since(noon))
		}
		b.evictions = nil
		b.pass(next)
	}
	if got, want := fmt.Sprint(tried), "[0s 5s 15s 35s 1m15s 2m15s]"; got != want {
		t.Errorf("tried at %s, want %s", got, want)
	}
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s, want one", got)
	}
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonBlockedByDisruptionBudget,
		"Evicting the pods of node m1. Pods that block the drain: "+
			"a/web (The disruption budget web needs 2 healthy pods and has 2 currently).")
}

// Rule: drain-names-blockers.
func TestBudgetIsNamedAndTriggersBlockedDrains(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, DesiredHealthy: 2},
	}
	b := newBench(t, budget, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	for _, pod := range []string{"web-1", "web-2"} {
		b.evictionErrors[pod] = refusedBy("web", 0)
	}
	for _, machine := range []string{"m2", "m1"} {
		b.drain(machine)
		b.runPass(machine)
		b.pass(time.Second)
	}
	b.expectEvictions("web-2", "web-1")
	o := b.drain("m1")
	b.expectOutcome(o, false, v1beta1.ReasonBlockedByDisruptionBudget,
		"Evicting the pods of node m1. Pods that block the drain: "+
			"a/web-1 (PodDisruptionBudget web can never allow the eviction: the budget needs all of its 2 pods).")
	if len(o.Blockers) != 1 || !o.Blockers[0].NeverAllowed || o.Blockers[0].Budgets[0] != "web" {
		t.Errorf("got blockers %+v", o.Blockers)
	}

	b.work.take()
	b.budgetChanged(budget) // The budget still allows no disruption.
	if got := b.work.take(); got != nil {
		t.Errorf("work for %v", got)
	}
	budget.Status.DisruptionsAllowed = 1
	b.budgetChanged(budget)
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Fatalf("work for %s, want [m2], which has waited for the longest time", got)
	}
	b.evictionErrors["web-2"] = nil
	b.runPass("m2")
	b.expectEvictions("web-2")
	b.runPass("m1")
	b.expectEvictions()

	budget.Status.DisruptionsAllowed = -1
	b.budgetChanged(budget)
	forced := request("m1")
	forced.Force = true
	b.Drain(forced)
	b.work.take()
	budget.Status.DisruptionsAllowed = 2
	b.budgetChanged(budget)
	if got := b.work.take(); got != nil {
		t.Errorf("work for %v after both drains no longer wait for the budget", got)
	}
}

func TestNewBlockerIsReportedAfterHalfAMinute(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")))
	b.evictionErrors["web-1"], b.evictionErrors["web-2"] = refusedBy("web", 0), refusedBy("web", 0)
	b.drain("m1")
	b.pass(b.runPass("m1"))
	if err := b.target.Create(context.Background(), on("m1", aPod("a/web-2"))); err != nil {
		t.Fatal(err)
	}
	b.pass(4 * time.Second)
	b.triggers.take()
	for b.triggers.take() == nil && b.clock.Now().Before(at(time.Hour)) {
		b.pass(b.runPass("m1"))
	}
	if o := b.drain("m1"); !strings.Contains(o.Message, "web-2") {
		t.Errorf("web-2 is not reported: %s", o.Message)
	}
	if rewritten := b.records.machines[key("m1")].drainPass.report.rewritten; !rewritten.Equal(at(30 * time.Second)) {
		t.Errorf("reported at %s, want 30s", rewritten.Sub(noon))
	}
}

// Rule: evictions-keep-budgets.
func TestRetryAfterOfTheAPIServerIsRespected(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.evictionErrors["web"] = apierrors.NewTooManyRequests("slow down", 17)
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("web")
	b.pass(17*time.Second - 1)
	if next := b.runPass("m1"); next != 1 {
		t.Errorf("the next check is after %s", next)
	}
	b.expectEvictions()
	b.pass(1)
	b.runPass("m1")
	b.expectEvictions("web")
}

// The condition must not report for another 30 seconds that the budget blocks the drain.
//
// Rule: drain-names-blockers.
func TestForcedDrainIsReportedAtOnce(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web", withGrace(1))))
	b.evictionErrors["web"] = refusedBy("web", 0)
	wanted := request("m1")
	wanted.Deadline = at(8 * time.Second)
	b.Drain(wanted)
	var reasons []string
	for range 20 {
		next := b.runPass("m1")
		if b.triggers.take() != nil {
			o := b.Drain(wanted)
			reasons = append(reasons, fmt.Sprint(b.clock.Since(noon), " ", o.Reason))
		}
		if next == 0 {
			break
		}
		b.pass(next)
	}
	if got, want := fmt.Sprint(reasons), "[0s BlockedByDisruptionBudget 7s DrainForced 8s Drained]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
