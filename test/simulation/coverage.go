package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// PlanReport is the result of a sweep of plans.
type PlanReport struct {
	// Variants is the number of undisturbed runs, and Effects is the number of their effects. PossibleSingles is the
	// number of possible plans with one fault.
	Variants, Effects, PossibleSingles int
	Singles, Pairs                     int
	Steps                              int64
	Coverage                           Coverage
	Failures                           []Failure
	Took                               time.Duration
}

// Coverage contains a Cell for each scenario and fault. The Cell counts the effects that can have the fault, and the
// effects that had the fault.
type Coverage map[string]map[string]*Cell

// Cell counts faults: All is the number of possible faults, and Done is the number of faults that have happened.
type Cell struct{ Done, All int }

// family returns the name of a fault for tables. For a frozen or relisted cache, the name does not contain the kind.
func (f Fault) family() string {
	for _, word := range []string{frozen, relisted} {
		if strings.HasPrefix(string(f), word) {
			return strings.TrimSuffix(word, "-")
		}
	}
	return string(f)
}

func (c Coverage) cell(scenario string, f Fault) *Cell {
	if c[scenario] == nil {
		c[scenario] = map[string]*Cell{}
	}
	if c[scenario][f.family()] == nil {
		c[scenario][f.family()] = &Cell{}
	}
	return c[scenario][f.family()]
}

func (c Coverage) possible(r *recording) {
	for _, at := range r.faults() {
		c.cell(r.scenario.Name, at.Fault).All++
	}
}

func (c Coverage) done(r *recording) { c.cell(r.scenario.Name, r.plan[0].Fault).Done++ }

// Table returns the coverage by single faults as a table. Each row is one scenario. Each cell contains the share of
// effects that had the fault, among the effects that can have it.
func (c Coverage) Table() string {
	faults := map[string]bool{}
	for _, row := range c {
		for f := range row {
			faults[f] = true
		}
	}
	columns := slices.Sorted(maps.Keys(faults))
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\t%s\t\n", strings.Join(columns, "\t"))
	for _, scenario := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(t, "%s\t", scenario)
		for _, f := range columns {
			switch cell := c[scenario][f]; {
			case cell == nil:
				fmt.Fprint(t, "-\t")
			case cell.Done == cell.All:
				fmt.Fprintf(t, "%d\t", cell.All)
			default:
				fmt.Fprintf(t, "%d/%d\t", cell.Done, cell.All)
			}
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	return out.String()
}

// impossibleFaults describes the faults that are impossible. No column of the table counts them.
const impossibleFaults = `plans: the following are not faults. After a read: a crash (it equals one before the next effect),
  a lost or late answer, or a request in flight, because a read changes nothing. A conflict of a creation, a read or
  a deletion without a version. A denial of reading bootstrap tokens (a provider without this permission creates
  none). The creation of a token in flight (Kubernetes removes it by a controller that is not in the world). A frozen
  or lost watch of a kind that the process does not cache.
`

// String returns the report as text.
func (r PlanReport) String() string {
	var out strings.Builder
	fmt.Fprintf(&out,
		"plans: effects of each scenario (%d undisturbed runs) that had each fault, of those that can have it\n%s%s",
		r.Variants, r.Coverage.Table(), impossibleFaults)
	switch left := r.PossibleSingles - r.Singles; {
	case left > 0 && len(r.Failures) > 0:
		fmt.Fprintf(&out, "plans: %d single faults were not tried, because this is a sample or violations ended it\n", left)
	case left > 0:
		fmt.Fprintf(&out,
			"plans: %d single faults were not tried, because this is an even sample; --full omits only some of caches\n", left)
	}
	fmt.Fprintf(&out,
		"plans: %d in %.1f s (%.0f plans/s): %d of %d single faults (%.1f %%) at %d effects, %d pairs, %d violations\n",
		r.Singles+r.Pairs, r.Took.Seconds(), float64(r.Singles+r.Pairs)/r.Took.Seconds(),
		r.Singles, r.PossibleSingles, 100*float64(r.Singles)/float64(max(1, r.PossibleSingles)), r.Effects, r.Pairs,
		len(r.Failures))
	return out.String()
}
