package ui

import (
	"fmt"
	"strconv"
	"time"

	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/platform/wording"
)

const orphansPerPage = 100

// orphansBody shows the same as "machinist orphans".
type orphansBody struct {
	Reports []orphanReport
	Rows    []orphanRow
	Paging  Paging
	// InOtherNamespaces holds the number of instances that are hidden because their former machines were in other
	// namespaces.
	InOtherNamespaces int
	ReadErrors        []string
}

type orphanReport struct {
	fleet.OrphanReport
	// Checks says how often the provider process checks its cloud.
	Checks string
}

type orphanRow struct {
	Provider, Instance, Machine, Source string
	FirstSeen                           time.Time
	Made                                *time.Time
	Outcome                             string
}

func orphansPage(r *request) (*page, error) {
	o, err := r.server.options.Source.Orphans(r.Context())
	if err != nil {
		return nil, err
	}
	b := orphansBody{InOtherNamespaces: o.InOtherNamespaces, ReadErrors: o.ReadErrors}
	var rows []orphanRow
	total := 0
	for _, report := range o.Reports {
		total += report.Total
		b.Reports = append(b.Reports, orphanReport{report, report.Checks(r.now)})
		for _, e := range report.Entries {
			rows = append(rows, orphanRow{Provider: report.Provider, Instance: fleet.EntryName(e), Machine: e.Machine,
				Source: e.Source, FirstSeen: e.FirstSeen, Made: e.Launched, Outcome: fleet.Outcome(e.Outcome, report.Interval())})
		}
	}
	number, _ := strconv.Atoi(r.query.Get("page"))
	b.Rows, b.Paging = paginate(rows, number, orphansPerPage, func(page int) string {
		return withQuery("/orphans", values("page", ordinal(page)))
	})
	return &page{title: "Orphans", template: "orphans", body: b,
		summary: fmt.Sprintf("%s without a Machine", wording.Count(total, "instance"))}, nil
}
