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
	// Variants is the number of undisturbed runs, and Effects the number of their effects. PossibleSingles is the
	// number of possible plans with one fault.
	Variants, Effects, PossibleSingles int
	Singles, Pairs                     int
	Steps                              int64
	Coverage                           Coverage
	// Breakages counts the runs in which each breakage happened. Judged counts how often each rule was checked in all
	// runs.
	Breakages map[Fault]int
	Judged    map[string]int
	Failures  []Failure
	Took      time.Duration
}

func newPlanReport() PlanReport {
	return PlanReport{Coverage: Coverage{}, Breakages: map[Fault]int{}, Judged: map[string]int{}}
}

// Coverage contains a Cell for each scenario and fault.
type Coverage map[string]map[string]*Cell

// Cell contains the coverage of one fault. All is the number of effects at which the fault is possible. Done is the
// number of effects at which the fault was tried.
type Cell struct{ Done, All int }

// family returns the name under which tables count a fault. The name does not contain the kind if the fault freezes or
// relists a cache.
func (f Fault) family() string {
	for _, word := range []string{freezePrefix, relistPrefix} {
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

// Table returns a table with the coverage by single faults. It has a row for each scenario. A cell contains the
// percentage of possible effects at which the fault was tried.
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

// impossibleFaults describes the faults that cannot happen. The table has no columns for these faults.
const impossibleFaults = `plans: these faults are impossible or have no effect:
  - after a read, a crash (it equals a crash before the next effect), a lost or late response, or a request in flight
  - a conflict of a creation, of a read, or of a deletion without a version
  - a denial of reading bootstrap tokens (a provider without this permission creates none)
  - the creation of a token in flight (the controller of Kubernetes that would remove the token is not in the world)
  - a frozen or lost watch of a kind that the process does not cache
`

// String returns the report as text.
func (r PlanReport) String() string {
	var out strings.Builder
	fmt.Fprintf(&out,
		"plans: share of the possible effects that had each fault, for each scenario (%d undisturbed runs)\n%s%s",
		r.Variants, r.Coverage.Table(), impossibleFaults)
	switch left := r.PossibleSingles - r.Singles; {
	case left > 0 && len(r.Failures) > 0:
		fmt.Fprintf(&out, "plans: %d single faults were not tried, because this is a sample or violations ended it\n", left)
	case left > 0:
		fmt.Fprintf(&out,
			"plans: %d single faults were not tried, because of sampling; --full omits only faults of caches\n", left)
	}
	fmt.Fprintf(&out, "plans: runs in which something broke: %s\nplans: checks of each rule: %s\n",
		counts(r.Breakages), counts(r.Judged))
	fmt.Fprintf(&out,
		"plans: %d in %.1f s (%.0f plans/s): %d of %d single faults (%.1f %%) at %d effects, %d pairs, %d violations\n",
		r.done(), r.Took.Seconds(), float64(r.done())/r.Took.Seconds(),
		r.Singles, r.PossibleSingles, 100*float64(r.Singles)/float64(max(1, r.PossibleSingles)), r.Effects, r.Pairs,
		len(r.Failures))
	return out.String()
}

func (r PlanReport) done() int {
	done := r.Singles + r.Pairs
	for _, n := range r.Breakages {
		done += n
	}
	return done
}

func counts[K ~string](all map[K]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, all[key]))
	}
	return strings.Join(parts, ", ")
}
