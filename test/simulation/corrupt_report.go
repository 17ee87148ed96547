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
	// By has a row for each field.
	By       map[string]CorruptionRow
	Failures []Failure
	Took     time.Duration
}

// CorruptionRow counts outcomes.
type CorruptionRow map[Outcome]int

func (r *CorruptionReport) take(of *recording, c Corruption, outcome Outcome, err error) {
	family := c.Field.Family()
	if r.By[family] == nil {
		r.By[family] = CorruptionRow{}
	}
	r.By[family][outcome]++
	if outcome != NotAdmitted {
		r.Run++
	}
	if outcome == Violated {
		r.Failures = append(r.Failures, Failure{Scenario: of.scenario.Name, Seed: of.seed, Corruption: &c, Err: err})
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
	admitted := r.Run
	for _, row := range r.By {
		admitted += row[NotAdmitted]
	}
	fmt.Fprintf(&out, "corruptions: %d of %d in the states that were taken tried, %d run, of %d fields, in %.1f s "+
		"(%.0f runs/s), %d violations\n", admitted, r.Possible, r.Run, len(r.By), r.Took.Seconds(),
		float64(r.Run)/r.Took.Seconds(), len(r.Failures))
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
