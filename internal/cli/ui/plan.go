package ui

import (
	"errors"
	"net/http"

	"machinist.dev/machinist/internal/cli/preview"
)

// maxPlanned limits the plans on the page, and the changes and rows of each plan.
const maxPlanned = 60

// planBody shows the same as "machinist plan".
type planBody struct {
	Manifest string
	Plans    []plannedChange
	// HiddenPlans is the number of plans that the page does not show.
	HiddenPlans int
	// Failure explains why the plans could not be computed.
	Failure string
}

type plannedChange struct {
	*preview.Plan
	Rows []preview.Row
	// HiddenRows holds the number of rows that the page does not show.
	HiddenRows int
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
	// The simulation of a large rollout uses a whole CPU core, so compute one plan at a time.
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
	if b.HiddenPlans = max(0, len(plans)-maxPlanned); b.HiddenPlans > 0 {
		plans = plans[:maxPlanned]
	}
	left := maxPlanned
	for _, plan := range plans {
		rows := plan.Rows()
		x := plannedChange{Plan: plan, Rows: rows[:min(len(rows), left)]}
		x.HiddenRows = len(rows) - len(x.Rows)
		left -= len(x.Rows)
		b.Plans = append(b.Plans, x)
	}
	p.body = b
	return p, nil
}

// Shown returns the changes that the page shows: the first maxPlanned changes of the plan.
func (p plannedChange) Shown() []preview.Change { return p.Changes[:min(len(p.Changes), maxPlanned)] }
