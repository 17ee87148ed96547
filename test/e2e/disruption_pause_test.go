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

// A pause in the middle of a rollout stops it within a second of its visibility, whatever dies. People scale up and
// down and delete machines meanwhile, and machines are launched. After the pause the rollout goes on within the other
// budget.
//
// Rules: fleet-pause, scale-down-asks-no-budget, disruptions-are-counted-exactly.
func TestDisruptionPause(t *testing.T) {
	t.Parallel()
	const rolling, limit = 12, 2
	m, processes := startForDisruption(t)
	record := m.recordDisruptions()
	log, err := auditlog.Open(m.Control.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	m.pool("rolling", rolling, surge(4))
	m.pool("other", 3, nil)
	m.poolIs("rolling", rolling, examples.SmallClass)
	others := m.poolIs("other", 3, examples.SmallClass)
	m.budget("two", "", intstr.FromInt32(limit))
	m.awaitBudget("two", "a budget that is understood", isValid)
	m.rollPool("rolling")
	eventually(t, "the rollout is under way", func() (bool, string) { return len(record.soFar()) >= 3, "" })

	pause := m.budget(disruption.PauseBudget, "", intstr.FromInt32(0))
	pause = m.awaitBudget(pause.Name, "a pause that the manager has seen", isValid)
	visible := firstStatus(t, log, pause.Name)
	processes.crash(m.Manager)
	processes.crash(m.Provider)

	t.Log("people have more machines, others, and fewer; one is launched anew")
	m.scaleOf("other", 5)
	m.poolIs("other", 5, examples.SmallClass)
	m.delete(others[0].Name)
	m.gone(others[0])
	m.poolIs("other", 5, examples.SmallClass)
	processes.crash(m.Manager)
	m.scaleOf("other", 2)
	m.poolIs("other", 2, examples.SmallClass)
	outdated := 0
	for _, machine := range m.machines() {
		if machine.Labels["pool"] == "rolling" && machine.Spec.ClassRef.Name == examples.SmallClass {
			outdated++
		}
	}
	// The end of the pause is not before this.
	resumed := m.revisionOf(m.budget("mark", "none", intstr.FromInt32(0)))
	m.deleteBudget(pause.Name)
	m.poolIs("rolling", rolling, examples.LargeClass)

	begins := slices.DeleteFunc(record.upTo(m.budget("end", "none", intstr.FromInt32(0))), func(b disrupted.Begin) bool {
		return b.Machine.Labels["pool"] != "rolling"
	})
	within(t, begins, disrupted.Budget{Name: "two", Allowed: atMost(limit)})
	deletions := deletionsByManager(t, log)
	before, after := 0, 0
	for _, b := range begins {
		switch at := deletions[b.Machine.Name]; {
		case at.IsZero():
			t.Errorf("machine %s was deleted by somebody else", b.Machine.Name)
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
		t.Errorf("%d disruptions began before the pause and %d after it, of %d machines that were outdated at its end",
			before, after, outdated)
	}
	m.noTwins()
	for _, pool := range []string{"rolling", "other"} {
		m.scaleOf(pool, 0)
	}
	m.none()
	m.nothingLeft(2*rolling + 6)
}

// firstStatus returns when the API server received the first status of a budget, after which the manager knows of it.
func firstStatus(t *testing.T, log *auditlog.Log, budget string) time.Time {
	t.Helper()
	requests := successes(t, log, func(r auditlog.Request) bool {
		return r.Resource == "machinedisruptionbudgets" && r.Subresource == "status" && r.Name == budget
	})
	if len(requests) == 0 {
		t.Fatalf("the manager has written no status of budget %s", budget)
	}
	return requests[0].Received
}

// deletionsByManager returns when the API server received the manager's deletion of each machine.
func deletionsByManager(t *testing.T, log *auditlog.Log) map[string]time.Time {
	t.Helper()
	at := map[string]time.Time{}
	deletes := func(r auditlog.Request) bool { return r.Resource == "machines" && r.Verb == "delete" }
	for _, r := range successes(t, log, deletes) {
		at[r.Name] = r.Received
	}
	return at
}

// successes returns the manager's requests of a kind that succeeded.
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
