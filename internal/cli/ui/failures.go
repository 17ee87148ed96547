package ui

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/platform/wording"
)

// failuresPerPage is low, because each message may have 1024 bytes.
const failuresPerPage = 50

// failuresBody is the content of the page with the current and earlier failures of machines.
type failuresBody struct {
	Query         string
	Rows          []failureRow
	Paging        Paging
	AllNamespaces bool
}

// failureRow is a failure with the current state of the machine.
type failureRow struct {
	why.Failure
	// Exists is true if the machine still exists. State is its current phase.
	Exists bool
	State  string
}

func failureRowOf(s *Snapshot, f why.Failure) failureRow {
	row := failureRow{Failure: f}
	if m := s.machines[types.NamespacedName{Namespace: f.Namespace, Name: f.Machine}]; m != nil {
		row.Exists, row.State = true, string(m.Status.Phase)
	}
	return row
}

func failuresPage(r *request) (*page, error) {
	s := r.snapshot
	b := failuresBody{Query: strings.TrimSpace(r.query.Get("q")),
		AllNamespaces: r.server.options.Source.Scope().Namespace == ""}
	all := failures(s)
	var rows []failureRow
	for _, f := range all {
		if b.Query == "" || contains(f.Machine, b.Query) || contains(f.Deployment, b.Query) || contains(f.Reason, b.Query) ||
			contains(f.Message, b.Query) {
			rows = append(rows, failureRowOf(s, f))
		}
	}
	number, _ := strconv.Atoi(r.query.Get("page"))
	b.Rows, b.Paging = paginate(rows, number, failuresPerPage, func(page int) string {
		return withQuery("/failures", values("q", b.Query, "page", ordinal(page)))
	})
	broken := totalsOf(s.Machines).Broken
	return &page{title: "Failures", template: "failures", body: b,
		summary: fmt.Sprintf("%s; machines that are broken now: %d", wording.Count(len(rows), "failure"), broken)}, nil
}

// failures returns the failures in the status of each deployment. The function adds broken machines that are not
// listed, because they have no deployment or there were too many failures.
func failures(s *Snapshot) []why.Failure {
	all := append([]why.Failure(nil), s.Status.RecentFailures...)
	known := map[types.NamespacedName]bool{}
	for _, f := range all {
		known[types.NamespacedName{Namespace: f.Namespace, Name: f.Machine}] = true
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		if fleet.ToneOf(m.State) != fleet.Bad || known[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] {
			continue
		}
		all = append(all, why.Failure{Namespace: m.Namespace, Deployment: m.Deployment, Machine: m.Name, Reason: m.Reason,
			Message: m.Message, Since: m.Since})
	}
	why.SortFailures(all)
	return all
}
