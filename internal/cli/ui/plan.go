package ui

import (
	"errors"
	"net/http"

	"machinist.dev/machinist/internal/cli/preview"
)

// maxPlanned is the maximum number of plans on the page, and the maximum number of changes and rows of each plan.
const maxPlanned = 60

// planBody is the template data for the page of plans. The page shows the same information as "machinist plan".
type planBody struct {
	Manifest string
	Plans    []planned
	// The field Left contains the number of plans that the page does not show.
	Left int
	// Failure is the error message if the plans could not be computed.
	Failure string
}

// planned is a plan with the rows of its table of waves.
type planned struct {
	*preview.Plan
	Rows []preview.Row
	// The field Left contains the number of rows that the page does not show.
	Left int
}

func planPage(r *request) (*page, error) {
	p := &page{title: "Plan", template: "plan"}
	if r.Method != http.MethodPost {
		p.body = planBody{}
		return p, nil
	}
	if err := r.ParseForm(); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, &pageError{http.StatusRequestEntityTooLarge, "The manifest is larger than 1 MiB."}
		}
		return nil, &pageError{http.StatusBadRequest, "The form cannot be read: " + err.Error()}
	}
	b := planBody{Manifest: r.PostForm.Get("manifest")}
	// Compute only one plan at a time, because the simulation of a large rollout uses a whole CPU core.
	select {
	case r.server.planning <- struct{}{}:
		defer func() { <-r.server.planning }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	plans, err := r.server.options.Source.Plan(r.Context(), b.Manifest)
	if err != nil {
		b.Failure = err.Error()
		p.status = http.StatusUnprocessableEntity
	}
	if b.Left = max(0, len(plans)-maxPlanned); b.Left > 0 {
		plans = plans[:maxPlanned]
	}
	left := maxPlanned
	for _, plan := range plans {
		rows := plan.Rows()
		x := planned{Plan: plan, Rows: rows[:min(len(rows), left)]}
		x.Left = len(rows) - len(x.Rows)
		left -= len(x.Rows)
		b.Plans = append(b.Plans, x)
	}
	p.body = b
	return p, nil
}

// Shown returns the first maxPlanned changes, because the page does not show more.
func (p planned) Shown() []preview.Change { return p.Changes[:min(len(p.Changes), maxPlanned)] }
