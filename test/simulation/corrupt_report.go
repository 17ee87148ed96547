package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// CorruptionReport is what came of a sweep of corruptions.
type CorruptionReport struct {
	// Possible is how many there are in the states that were taken, Run how many were run.
	Possible, Run int
	// By has a row for each field, also for those that were not tried.
	By map[string]CorruptionRow
	// Ways are the fields with the ways in which they can be changed, and whether that was tried.
	Ways     map[string]bool
	Failures []Failure
	Took     time.Duration
}

// CorruptionRow counts outcomes.
type CorruptionRow map[Outcome]int

// may takes note of what is possible in a scenario.
func (r *CorruptionReport) may(candidates []candidate) {
	r.Possible += len(candidates)
	for i := range candidates {
		c := &candidates[i]
		if family := c.Field.Family(); r.By[family] == nil {
			r.By[family] = CorruptionRow{}
		}
		if _, known := r.Ways[c.group]; !known {
			r.Ways[c.group] = false
		}
	}
}

// take takes note of what came of a corruption.
func (r *CorruptionReport) take(of *recording, c candidate, outcome Outcome, err error) {
	r.By[c.Field.Family()][outcome]++
	r.Ways[c.group] = true
	if outcome != NotAdmitted {
		r.Run++
	}
	if outcome == Violated {
		r.Failures = append(r.Failures, Failure{Scenario: of.scenario.Name, Seed: of.seed, Corruption: &c.Corruption,
			Err: err})
	}
}

// String returns the report for people: a row for each part of each kind.
func (r CorruptionReport) String() string {
	parts, fields := map[string]CorruptionRow{}, map[string]int{}
	for family, row := range r.By {
		kind, rest, _ := strings.Cut(family, ".")
		part, _, _ := strings.Cut(rest, ".")
		key := kind + "." + part
		if parts[key] == nil {
			parts[key] = CorruptionRow{}
		}
		fields[key]++
		for outcome, n := range row {
			parts[key][outcome] += n
		}
	}
	var out strings.Builder
	writeRows(&out, parts, fields)
	admitted, tried, ways := r.Run, 0, 0
	for _, row := range r.By {
		admitted += row[NotAdmitted]
		if len(row) > 0 {
			tried++
		}
	}
	for _, way := range r.Ways {
		if way {
			ways++
		}
	}
	fmt.Fprintf(&out, "corruptions: %d of %d in the states that were taken tried, %d run, of %d fields of %d, which have %d "+
		"ways to change, of which %d were tried, in %.1f s (%.0f runs/s), %d violations\n", admitted, r.Possible, r.Run, tried,
		len(r.By), len(r.Ways), ways, r.Took.Seconds(), float64(r.Run)/r.Took.Seconds(), len(r.Failures))
	return out.String()
}

// Fields returns a row for each field.
func (r CorruptionReport) Fields() string {
	var out strings.Builder
	writeRows(&out, r.By, nil)
	return out.String()
}

// writeRows writes a table of outcomes, with the number of fields of each row where that is given.
func writeRows(out *strings.Builder, rows map[string]CorruptionRow, fields map[string]int) {
	t := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	if fields != nil {
		fmt.Fprint(t, "fields\t")
	}
	for _, outcome := range Outcomes() {
		fmt.Fprintf(t, "%s\t", outcome)
	}
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(t, "%s\t", extreme.ReplaceAllString(name, "(extreme)"))
		if fields != nil {
			fmt.Fprintf(t, "%d\t", fields[name])
		}
		for _, outcome := range Outcomes() {
			fmt.Fprintf(t, "%d\t", rows[name][outcome])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}
