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
	// PossibleCount is the number of corruptions that are possible in the selected states. RunCount is the number of
	// corruptions for which a run was made.
	PossibleCount, RunCount int
	// ByField contains the numbers of outcomes for each field. Fields that were not tried have an entry too.
	ByField map[string]CorruptionCounts
	// ChangeKinds contains the possible kinds of changes of each field, as pairs. The value is true if this change
	// was tried.
	ChangeKinds map[string]bool
	Failures    []Failure
	Took        time.Duration
}

// CorruptionCounts counts outcomes.
type CorruptionCounts map[Outcome]int

func (r *CorruptionReport) notePossible(candidates []candidate) {
	r.PossibleCount += len(candidates)
	for i := range candidates {
		c := &candidates[i]
		if family := c.Field.ReportName(); r.ByField[family] == nil {
			r.ByField[family] = CorruptionCounts{}
		}
		if _, known := r.ChangeKinds[c.group]; !known {
			r.ChangeKinds[c.group] = false
		}
	}
}

func (r *CorruptionReport) noteOutcome(of *recording, c candidate, outcome Outcome, err error) {
	r.ByField[c.Field.ReportName()][outcome]++
	r.ChangeKinds[c.group] = true
	if outcome != OutcomeNotAdmitted {
		r.RunCount++
	}
	if outcome == OutcomeViolated {
		r.Failures = append(r.Failures, Failure{Scenario: of.scenario.Name, Seed: of.seed, Corruption: &c.Corruption,
			Err: err})
	}
}

// String returns the report as a table. Each row is one part of the fields of a kind, such as the status.
func (r CorruptionReport) String() string {
	parts, fields := map[string]CorruptionCounts{}, map[string]int{}
	for family, row := range r.ByField {
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
	admitted, tried, ways := r.RunCount, 0, 0
	for _, row := range r.ByField {
		admitted += row[OutcomeNotAdmitted]
		if len(row) > 0 {
			tried++
		}
	}
	for _, way := range r.ChangeKinds {
		if way {
			ways++
		}
	}
	fmt.Fprintf(&out, "corruptions: tried %d of %d in the selected states, ran %d, of %d fields of %d, which have %d "+
		"ways to change, of which %d were tried, in %.1f s (%.0f runs/s), %d violations\n", admitted, r.PossibleCount, r.RunCount, tried,
		len(r.ByField), len(r.ChangeKinds), ways, r.Took.Seconds(), float64(r.RunCount)/r.Took.Seconds(), len(r.Failures))
	return out.String()
}

// Fields returns a table in which each row is one field.
func (r CorruptionReport) Fields() string {
	var out strings.Builder
	writeRows(&out, r.ByField, nil)
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
		fmt.Fprintf(t, "%s\t", extremeText.ReplaceAllString(name, "(extreme)"))
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
