package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// CorruptionReport contains the number of runs, their outcomes and the failures of a Corruptions sweep.
type CorruptionReport struct {
	// Possible is the number of corruptions that are possible in the selected states. Run is the number of corruptions
	// for which a run was made.
	Possible, Run int
	// By contains the numbers of outcomes for each field. Fields that were not tried have an entry too.
	By map[string]CorruptionCounts
	// Ways contains the possible kinds of changes of each field, as pairs. The value is true if this change was tried.
	Ways     map[string]bool
	Failures []Failure
	Took     time.Duration
}

// CorruptionCounts counts outcomes.
type CorruptionCounts map[Outcome]int

func (r *CorruptionReport) notePossible(candidates []candidate) {
	r.Possible += len(candidates)
	for i := range candidates {
		c := &candidates[i]
		if family := c.Field.ReportName(); r.By[family] == nil {
			r.By[family] = CorruptionCounts{}
		}
		if _, known := r.Ways[c.group]; !known {
			r.Ways[c.group] = false
		}
	}
}

func (r *CorruptionReport) noteOutcome(of *recording, c candidate, outcome Outcome, err error) {
	r.By[c.Field.ReportName()][outcome]++
	r.Ways[c.group] = true
	if outcome != NotAdmitted {
		r.Run++
	}
	if outcome == Violated {
		r.Failures = append(r.Failures, Failure{Scenario: of.scenario.Name, Seed: of.seed, Corruption: &c.Corruption,
			Err: err})
	}
}

// String returns the report as a table. Each row is one part of the fields of a kind, such as the status.
func (r CorruptionReport) String() string {
	parts, fields := map[string]CorruptionCounts{}, map[string]int{}
	for family, row := range r.By {
		kind, rest, _ := strings.Cut(family, ".")
		part, _, _ := strings.Cut(rest, ".")
		key := kind + "." + part
		if parts[key] == nil {
			parts[key] = CorruptionCounts{}
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
	fmt.Fprintf(&out, "corruptions: tried %d of %d in the selected states, ran %d, of %d fields of %d, which have %d "+
		"ways to change, of which %d were tried, in %.1f s (%.0f runs/s), %d violations\n", admitted, r.Possible, r.Run, tried,
		len(r.By), len(r.Ways), ways, r.Took.Seconds(), float64(r.Run)/r.Took.Seconds(), len(r.Failures))
	return out.String()
}

// Fields returns a table in which each row is one field.
func (r CorruptionReport) Fields() string {
	var out strings.Builder
	writeRows(&out, r.By, nil)
	return out.String()
}

func writeRows(out *strings.Builder, rows map[string]CorruptionCounts, fields map[string]int) {
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
