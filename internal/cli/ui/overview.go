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
	// deploymentsPerPage is how many rows the overview has.
	deploymentsPerPage = 50
	// mostOfAPart is how much of each other part is shown.
	mostOfAPart = 20
)

// overviewBody is the first page: what machinist status says.
type overviewBody struct {
	Status fleet.Status
	Query  string
	State  string
	States []string
	// Rows are the deployments that are shown.
	Rows   []deploymentRow
	Paging Paging
	// Totals are those of all machines.
	Totals totals
	// Troubles are processes that do not run, in words.
	Troubles []string
	// Failures are the last ones, newest first, and MoreFailures how many others there are.
	Failures     []why.Failure
	MoreFailures int
	// AllNamespaces says that there may be several namespaces.
	AllNamespaces bool
}

type deploymentRow struct {
	fleet.Scaled
	Bar Bar
}

// totals count the machines, each once.
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
		case m.Settled():
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

// overviewSummary says how the fleet stands in a sentence: what a person wants to hear when it changes.
func overviewSummary(b overviewBody, rows []deploymentRow) string {
	words := []string{fmt.Sprintf("%s, %d settled", wording.Count(b.Totals.Machines, "machine"), b.Totals.Settled)}
	if b.Totals.Broken > 0 {
		words = append(words, fmt.Sprintf("%d failed", b.Totals.Broken))
	}
	shown := 0
	for _, d := range rows {
		if d.Rollout == "Complete" {
			continue
		}
		if shown++; shown > 3 {
			words = append(words, "and others")
			break
		}
		words = append(words, fmt.Sprintf("%s %s: %d of %d updated", d.Name, d.Rollout, d.Updated, d.Desired))
	}
	return strings.Join(words, ", ") + "."
}

// Cut returns the first of a part, for templates.
func (b overviewBody) Cut(n int) int { return min(n, mostOfAPart) }
