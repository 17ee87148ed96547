//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/test/e2e/disrupted"
)

// When a pause begins, a rollout must stop within a second, even if processes are killed. Machines can still be scaled,
// deleted and launched. After the pause, the rollout continues within the other budget.
//
// Rules: fleet-pause, scale-down-asks-no-budget, disruptions-are-counted-exactly.
func TestDisruptionPauseStopsRollout(t *testing.T) {
	t.Parallel()
	const rolling, limit = 12, 2
	m, processes := startForDisruption(t)
	record := m.recordDisruptions()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	m.createPool("rolling", rolling, surge(4))
	m.createPool("other", 3, nil)
	m.awaitPool("rolling", rolling, examples.SmallClass)
	others := m.awaitPool("other", 3, examples.SmallClass)
	m.createBudget("two", "", intstr.FromInt32(limit))
	m.awaitBudget("two", "a valid budget", isValid)
	m.rollOutPool("rolling")
	eventually(t, "the rollout is under way", func() (bool, string) { return len(record.soFar()) >= 3, "" })

	pause := m.createBudget(disruption.PauseBudget, "", intstr.FromInt32(0))
	pause = m.awaitBudget(pause.Name, "the manager to observe the pause", isValid)
	visible := firstStatus(t, log, pause.Name)
	processes.crash(m.Manager)
	processes.crash(m.Provider)

	t.Log("during the pause, scale up, delete a machine, and scale down")
	m.scaleDeployment("other", 5)
	m.awaitPool("other", 5, examples.SmallClass)
	m.delete(others[0].Name)
	m.awaitGone(others[0])
	m.awaitPool("other", 5, examples.SmallClass)
	processes.crash(m.Manager)
	m.scaleDeployment("other", 2)
	m.awaitPool("other", 2, examples.SmallClass)
	outdated := 0
	for _, machine := range m.machines() {
		if machine.Labels["pool"] == "rolling" && machine.Spec.ClassRef.Name == examples.SmallClass {
			outdated++
		}
	}
	// The pause is certainly in force up to this revision.
	resumed := m.revisionOf(m.createBudget("mark", "none", intstr.FromInt32(0)))
	m.deleteBudget(pause.Name)
	m.awaitPool("rolling", rolling, examples.LargeClass)

	begins := slices.DeleteFunc(record.upTo(m.createBudget("end", "none", intstr.FromInt32(0))), func(b disrupted.DisruptionStart) bool {
		return b.Machine.Labels["pool"] != "rolling"
	})
	wantWithinBudgets(t, begins, disrupted.Budget{Name: "two", Allowed: atMost(limit)})
	deletions := deletionsByManager(t, log)
	before, after := 0, 0
	for _, b := range begins {
		switch at := deletions[b.Machine.Name]; {
		case at.IsZero():
			t.Errorf("machine %s was not deleted by the manager", b.Machine.Name)
		case b.Revision > resumed:
			after++
		case at.Sub(visible) > time.Second:
			t.Errorf("machine %s was disrupted %s after the pause was visible", b.Machine.Name, at.Sub(visible))
		default:
			before++
			if at.After(visible) {
				t.Logf("machine %s was disrupted %s after the pause was visible", b.Machine.Name, at.Sub(visible))
			}
		}
	}
	t.Logf("%d disruptions began before the pause and %d after it", before, after)
	if outdated == 0 || after != outdated || before+after != rolling {
		t.Errorf("got %d disruptions before the pause and %d after it, want %d in total, and as many after it as the %d "+
			"outdated machines at its end", before, after, rolling, outdated)
	}
	m.wantNoTwins()
	for _, pool := range []string{"rolling", "other"} {
		m.scaleDeployment(pool, 0)
	}
	m.awaitNoMachines()
	m.wantNothingLeft(2*rolling + 6)
}

// firstStatus returns the time of the first status of a budget. The first status shows that the manager knows the
// budget.
func firstStatus(t *testing.T, log *auditlog.Log, budget string) time.Time {
	t.Helper()
	requests := successes(t, log, func(r auditlog.Request) bool {
		return r.Resource == "machinedisruptionbudgets" && r.Subresource == "status" && r.Name == budget
	})
	if len(requests) == 0 {
		t.Fatalf("the manager has written no status of budget %s", budget)
	}
	return requests[0].ReceivedAt
}

func deletionsByManager(t *testing.T, log *auditlog.Log) map[string]time.Time {
	t.Helper()
	at := map[string]time.Time{}
	deletes := func(r auditlog.Request) bool { return r.Resource == "machines" && r.Verb == "delete" }
	for _, r := range successes(t, log, deletes) {
		at[r.Name] = r.ReceivedAt
	}
	return at
}

func successes(t *testing.T, log *auditlog.Log, is func(auditlog.Request) bool) []auditlog.Request {
	t.Helper()
	requests, err := log.Requests(auditlog.Filter{Users: []string{stack.Manager}, Match: func(r auditlog.Request) bool {
		return r.Code < 300 && is(r)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return requests
}
