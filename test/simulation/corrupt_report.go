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
	By       map[string]*CorruptionRow
	Failures []Failure `json:"failures"`
	Took     time.Duration
}

// CorruptionRow counts outcomes.
type CorruptionRow map[Outcome]int

func (r *CorruptionReport) take(of *recording, c Corruption, outcome Outcome, err error) {
	family := c.Field.Family()
	if r.By[family] == nil {
		r.By[family] = &CorruptionRow{}
	}
	(*r.By[family])[outcome]++
	if outcome != NotAdmitted {
		r.Run++
	}
	if outcome == Violated {
		r.Failures = append(r.Failures, Failure{Scenario: of.scenario.Name, Seed: of.seed, Corruption: &c, Err: err})
	}
}

// String returns the report for people: a row for each kind.
func (r CorruptionReport) String() string {
	kinds := map[string]CorruptionRow{}
	fields := map[string]int{}
	for family, row := range r.By {
		kind, rest, _ := strings.Cut(family, ".")
		part, _, _ := strings.Cut(rest, ".")
		kind += "." + part
		if kinds[kind] == nil {
			kinds[kind] = CorruptionRow{}
		}
		fields[kind]++
		for o, n := range *row {
			kinds[kind][o] += n
		}
	}
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tfields\t")
	for _, o := range Outcomes() {
		fmt.Fprintf(t, "%s\t", o)
	}
	fmt.Fprintln(t)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(t, "%s\t%d\t", kind, fields[kind])
		for _, o := range Outcomes() {
			fmt.Fprintf(t, "%d\t", kinds[kind][o])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	fmt.Fprintf(&out, "corruptions: %d of %d possible ones of %d fields run in %.1f s (%.0f runs/s), %d violations\n", r.Run,
		r.Possible, len(r.By), r.Took.Seconds(), float64(r.Run)/r.Took.Seconds(), len(r.Failures))
	return out.String()
}
