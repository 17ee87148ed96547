package ui

import (
	"fmt"
	"math"
	"slices"

	"machinist.dev/machinist/internal/cli/timeline"
)

const maxSteps, maxOperations = 30, 6

type operation struct {
	timeline.Operation
	Took  string
	Steps []step
}

type step struct {
	timeline.Step
	Took     string
	Words    string
	Segments []Segment
}

func operationsOf(t timeline.Timeline) []operation {
	all := make([]operation, 0, len(t.Operations))
	for _, o := range t.Operations {
		out := operation{Operation: o, Took: timeline.FormatDuration(o.Seconds)}
		for _, s := range o.Steps[:min(len(o.Steps), maxSteps)] {
			long := int(math.Round(s.Share * 1000))
			class := "ready"
			if s.End == nil {
				class = "coming"
			}
			at := 0
			if !o.Start.IsZero() && o.Seconds > 0 {
				at = min(1000-long, int(math.Round(1000*s.Start.Sub(o.Start).Seconds()/o.Seconds)))
			}
			out.Steps = append(out.Steps, step{Step: s, Took: timeline.FormatDuration(s.Seconds),
				Words: fmt.Sprintf("%d%% of the time", long/10), Segments: []Segment{{Class: class, At: max(0, at), Long: max(4, long)}}})
		}
		all = append(all, out)
	}
	slices.Reverse(all)
	return all[:min(len(all), maxOperations)]
}
