package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	deploymentsPerPage = 50
	// maxRows limits the rows of each table of the overview, except for the table of deployments.
	maxRows = 20
)

// overviewBody shows the same as "machinist status".
type overviewBody struct {
	Status fleet.Status
	Query  string
	State  string
	States []string
	// Rows are the deployments on this page.
	Rows   []deploymentRow
	Paging Paging
	// Totals are the numbers of machines in the whole fleet.
	Totals totals
	// Troubles has a sentence for each process that is not running.
	Troubles []string
	// Failures lists the latest failures, newest first. MoreFailures is the number of failures that the page does not
	// show.
	Failures      []why.Failure
	MoreFailures  int
	AllNamespaces bool
}

type deploymentRow struct {
	fleet.Scaled
	Bar Bar
}

// totals holds the numbers of machines in each state. Each machine counts in exactly one state. Machines that are being
// deleted count as Leaving. Machines with a failure or an unhealthy Node count as Broken. Machines that run, are up to
// date and do not wait count as Settled. All remaining machines count as Coming.
type totals struct {
	Machines, Settled, Coming, Broken, Leaving int
}

func totalsOf(machines []fleet.Machine) totals {
	t := totals{Machines: len(machines)}
	for i := range machines {
		switch m := &machines[i]; {
		case m.Deleting:
			t.Leaving++
		case fleet.ToneOf(m.State) == fleet.Bad:
			t.Broken++
		case m.IsSettled():
			t.Settled++
		default:
			t.Coming++
		}
	}
	return t
}

func overviewPage(r *request) (*page, error) {
	s := r.snapshot
	b := overviewBody{Status: s.Status, Query: strings.TrimSpace(r.query.Get("q")), State: r.query.Get("state"),
		Totals: totalsOf(s.Machines), AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	seen := map[string]bool{}
	var rows []deploymentRow
	for _, d := range s.Status.Deployments {
		seen[d.Rollout] = true
		if b.State != "" && d.Rollout != b.State || b.Query != "" && !contains(d.Namespace+"/"+d.Name, b.Query) {
			continue
		}
		rows = append(rows, deploymentRow{d, s.bars[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}]})
	}
	for state := range seen {
		b.States = append(b.States, state)
	}
	slices.Sort(b.States)
	number, _ := strconv.Atoi(r.query.Get("page"))
	b.Rows, b.Paging = paginate(rows, number, deploymentsPerPage, func(page int) string {
		return withQuery("/", values("q", b.Query, "state", b.State, "page", strconv.Itoa(page)))
	})
	for _, p := range s.Status.Processes {
		if what, more := p.Trouble(r.now); what != "" {
			b.Troubles = append(b.Troubles, what+more)
		}
	}
	b.Failures = s.Status.RecentFailures
	if b.MoreFailures = max(0, len(b.Failures)-5); b.MoreFailures > 0 {
		b.Failures = b.Failures[:5]
	}
	return &page{title: "Fleets", template: "overview", body: b, summary: overviewSummary(b, rows)}, nil
}

// overviewSummary describes the fleet in one sentence. Screen readers read this sentence when the fleet has changed.
func overviewSummary(b overviewBody, rows []deploymentRow) string {
	parts := []string{fmt.Sprintf("%s, %d healthy", wording.Count(b.Totals.Machines, "machine"), b.Totals.Settled)}
	if b.Totals.Broken > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", b.Totals.Broken))
	}
	shown := 0
	for _, d := range rows {
		if d.Rollout == "Complete" {
			continue
		}
		if shown++; shown > 3 {
			parts = append(parts, "and others")
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s: %d of %d updated", d.Name, d.Rollout, d.Updated, d.Desired))
	}
	return strings.Join(parts, ", ") + "."
}

// RowLimit returns how many of n rows the page shows.
func (b overviewBody) RowLimit(n int) int { return min(n, maxRows) }
