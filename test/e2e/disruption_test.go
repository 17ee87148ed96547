//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/e2e/disrupted"
)

// startForDisruption starts a Machinist with the classes of the example. The test may often kill its processes. The
// cloud takes a second to remove an instance.
func startForDisruption(t *testing.T) (*machinist, *supervised) {
	t.Helper()
	m := start(t, stack.Options{ManagerArgs: shortLease, ProviderArgs: shortLease})
	s := m.supervise(m.Manager, m.Provider)
	m.removeDelays()
	moment := simcloud.Duration(time.Second)
	m.settings(simcloud.SettingsPatch{ShutdownTime: &moment, RebootTime: &moment})
	m.createFleet(0, nil)
	return m, s
}

// Three deployments roll out at the same time, one of them in place, with two overlapping budgets. A third budget
// pauses all disruptions for one minute, and the processes are killed meanwhile. No write may exceed a budget. In the
// end, all machines are up to date, and each old machine was disrupted once.
//
// Rules: disruption-asks-budgets, every-budget-must-have-room, disruptions-are-counted-exactly,
// budget-allows-number-or-percentage, budget-in-force-by-windows.
func TestDisruptionStaysWithinBudgets(t *testing.T) {
	t.Parallel()
	const each, surplus = 12, 4
	m, processes := startForDisruption(t)
	record := m.recordDisruptions()
	pools := []string{"one", "many", "in-place"}
	m.createPool("one", each, surge(surplus))
	m.createPool("many", each, surge(surplus))
	m.createPool("in-place", each, func(d *v1beta1.MachineDeployment) {
		d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyInPlace,
			InPlace: &v1beta1.InPlaceUpdate{MaxUnavailable: ptr.To(intstr.FromInt32(surplus))}}
	})
	m.awaitPools(2*time.Minute, 3*each, examples.SmallClass, pools...)
	// Half of each pool cannot be drained at first, so that the rollout is still in progress when the window opens.
	var blocked []string
	for _, pool := range pools {
		for _, machine := range m.awaitPool(pool, each, examples.SmallClass)[:each/2] {
			blocked = append(blocked, machine.Status.NodeRef.Name)
		}
	}
	m.protectedPods("blocked", blocked...)

	opens := nextMinute(time.Now().Add(25 * time.Second))
	closes := opens.Add(time.Minute)
	m.createBudget("fifth", "", intstr.FromString("20%"))
	m.createBudget("one", "one", intstr.FromInt32(1))
	m.createBudget("window", "", intstr.FromInt32(0), v1beta1.DisruptionWindow{
		Schedule: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Minute}})
	for _, name := range []string{"fifth", "one", "window"} {
		m.awaitBudget(name, "a valid budget", isValid)
	}
	for _, pool := range pools {
		m.rollOutPool(pool)
	}
	for kill, n := range []int{2, 5, 8} {
		eventually(t, fmt.Sprintf("%d disruptions have begun, or the window opens", n), func() (bool, string) {
			begun := len(record.soFar())
			return begun >= n || !time.Now().Before(opens), fmt.Sprint(begun)
		})
		processes.crash(m.Manager)
		if kill == 1 {
			processes.crash(m.Provider)
		}
	}
	m.awaitBudget("window", "the budget with an open window", func(b *v1beta1.MachineDisruptionBudget) bool {
		return b.Status.Allowed != nil
	})
	t.Logf("the window is open after %d disruptions; the blocked drains may continue", len(record.soFar()))
	m.liftBudget("blocked")
	processes.crash(m.Manager)
	m.awaitPools(4*time.Minute, 3*each, examples.LargeClass, pools...)

	begins := record.upTo(m.createBudget("end", "none", intstr.FromInt32(0)))
	wantWithinBudgets(t, begins,
		disrupted.Budget{Name: "fifth", Allowed: func(selected int) int { return max(1, selected/5) }},
		disrupted.Budget{Name: "one", Selects: ofPool("one"), Allowed: atMost(1)},
		disrupted.Budget{Name: "window", Allowed: atMost(0), InForce: func(b disrupted.DisruptionStart) bool {
			// If the process decided before the window opened, its write may still follow within a second.
			return b.At.After(opens.Add(time.Second)) && b.At.Before(closes)
		}},
	)
	once := map[string]int{}
	before, after := 0, 0
	for _, b := range begins {
		once[b.Machine.Name]++
		if b.At.Before(closes) {
			before++
		} else {
			after++
		}
	}
	if len(once) != 3*each || len(begins) != 3*each {
		t.Errorf("got %d disrupted machines in %d disruptions, want %d, each disrupted once", len(once), len(begins), 3*each)
	}
	if before == 0 || after == 0 {
		t.Errorf("got %d disruptions before the window closed and %d after it, want some of both", before, after)
	}
	t.Logf("%d disruptions began before the window closed, %d after it", before, after)
	m.wantNoTwins()
	for _, pool := range pools {
		m.scaleDeployment(pool, 0)
	}
	m.awaitNoMachines()
	m.wantNothingLeft(5 * each)
}

func nextMinute(t time.Time) time.Time { return t.UTC().Truncate(time.Minute).Add(time.Minute) }

func isValid(b *v1beta1.MachineDisruptionBudget) bool {
	return slices.ContainsFunc(b.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1beta1.ConditionValid && c.Status == metav1.ConditionTrue
	})
}
