package simulation

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// SemanticsSweep runs each scenario with different cloud semantics, without faults and with a sample of single faults.
type SemanticsSweep struct {
	Scenarios []Scenario
	Habits    []Habits
	// OneIn selects every n-th combination of scenario and semantics, evenly for all scenarios and semantics. 0 and 1
	// mean all of them. Another seed selects other combinations.
	OneIn int
	// Faults is the number of single faults for each combination of scenario and semantics. Scenarios of the group
	// Incidents get only a fifth of this number.
	Faults  int
	Seed    uint64
	Workers int
	// Progress, if set, is called from time to time.
	Progress func(done int)
	// StopEarly, if set, ends the sweep early by returning true for the failures so far.
	StopEarly func([]Failure) bool
}

// SemanticsReport is the result of a SemanticsSweep.
type SemanticsReport struct {
	Undisturbed, Plans int
	// BySemantics maps each combination of semantics to its row in the report.
	BySemantics map[string]*SemanticsRow
	habits      []Habits
	Failures    []Failure
	Took        time.Duration
}

// SemanticsRow contains the numbers of runs in a cloud with one combination of semantics.
type SemanticsRow struct{ Undisturbed, Plans, Violations int }

// Run runs the sweep.
func (s SemanticsSweep) Run(scheme *runtime.Scheme) (SemanticsReport, error) {
	began := time.Now()
	report := SemanticsReport{BySemantics: map[string]*SemanticsRow{}, habits: s.Habits}
	for _, h := range s.Habits {
		report.BySemantics[h.String()] = &SemanticsRow{}
	}
	prepared, baseline := make([]*Prepared, len(s.Scenarios)), make([]func() Result, len(s.Scenarios))
	for i, scenario := range s.Scenarios {
		p, err := scenario.Prepare(scheme)
		if err != nil {
			return SemanticsReport{}, err
		}
		prepared[i], baseline[i] = p, sync.OnceValue(func() Result { return p.record(s.Seed).result })
	}
	var (
		mu      sync.Mutex
		stop    atomic.Bool
		next    atomic.Int64
		workers sync.WaitGroup
	)
	check := func(p *Prepared, plan Plan, err error) (more bool) {
		mu.Lock()
		defer mu.Unlock()
		row := report.BySemantics[p.Habits.String()]
		if len(plan) == 0 {
			report.Undisturbed++
			row.Undisturbed++
		} else {
			report.Plans++
			row.Plans++
		}
		if err != nil {
			row.Violations++
			report.Failures = append(report.Failures, Failure{Scenario: p.Name, Seed: s.Seed, Habits: p.Habits,
				WithoutFaults: len(plan) == 0, Plan: plan, Err: err})
			if s.StopEarly != nil && s.StopEarly(report.Failures) {
				stop.Store(true)
			}
		}
		if done := report.Undisturbed + report.Plans; s.Progress != nil && done%1000 == 0 {
			s.Progress(done)
		}
		return !stop.Load()
	}
	for range max(s.Workers, 1) {
		workers.Go(func() {
			for !stop.Load() {
				n := int(next.Add(1) - 1)
				if n >= len(prepared)*len(s.Habits) {
					return
				}
				i, j := n/len(s.Habits), n%len(s.Habits)
				if (i+j+int(s.Seed%uint64(max(s.OneIn, 1))))%max(s.OneIn, 1) == 0 {
					s.try(prepared[i], baseline[i], s.Habits[j], check)
				}
			}
		})
	}
	workers.Wait()
	report.Took = time.Since(began)
	return report, nil
}

// try runs the plans of one scenario under one combination of cloud semantics. A run with a fault is compared with a
// run that has the same semantics, but no fault. Without a fault, a run with the semantics is compared with baseline,
// which is a run without semantics.
func (s SemanticsSweep) try(p *Prepared, baseline func() Result, h Habits, check func(*Prepared, Plan, error) bool) {
	under := p.Under(h)
	r := under.record(s.Seed)
	err := r.failureAgainstBaseline(baseline())
	if !check(under, nil, err) || err != nil {
		return
	}
	all := r.faults()
	hash := fnv.New64a()
	fmt.Fprint(hash, p.Name, h, s.Seed)
	for _, at := range spreadIndexes(len(all), float64(s.faultsOf(p)), hash.Sum64()) {
		disturbed := r.withFault(all[at], false)
		if !check(under, disturbed.plan, disturbed.failure(r.result)) {
			return
		}
	}
}

// failureAgainstBaseline checks an undisturbed run in a cloud with unusual semantics. It returns an error if the run
// failed, or if its result differs from the run in a cloud without these semantics.
func (r *recording) failureAgainstBaseline(baseline Result) error {
	if baseline.Err != nil {
		return baseline.Err
	}
	if err := r.failure(baseline); err != nil {
		return err
	}
	return r.scenario.Habits.checkInstanceCount(r, baseline)
}

// faultsOf returns the number of faults for a scenario. The number is small for incidents, because these runs are long
// and already contain a disturbance.
func (s SemanticsSweep) faultsOf(p *Prepared) int {
	if p.Group == Incidents {
		return s.Faults / 5
	}
	return s.Faults
}

// checkInstanceCount checks that late or wrong responses of the cloud do not cause additional instances, if the users
// take the same actions.
//
// If the cloud rejects calls, additional instances are allowed in two cases. In the first case, a rollout is delayed,
// so a machine with a broken instance is replaced before the rollout would have removed it. In the second case, a user
// deletes the fleet as soon as its first instance exists. Because of the delay, all of its machines have an instance by
// then.
func (h Habits) checkInstanceCount(r *recording, baseline Result) error {
	if r.scenario.MayDiffer != nil || r.scenario.Group != Lifecycle {
		return nil
	}
	most := baseline.CreatedInstances
	for _, s := range h {
		if !s.onlyReports() {
			return nil
		}
		if s == CredentialsExpire || s == ThrottledOften {
			if most = baseline.CreatedInstances + r.result.BrokenInstances; r.result.TakenBack {
				most = max(most, r.result.Machines)
			}
		}
	}
	// There may be fewer instances, because users may withdraw a request before it is carried out.
	if r.result.CreatedInstances > most {
		return fmt.Errorf("made: %d instances were created, want at most %d as in a cloud that shows everything at once",
			r.result.CreatedInstances, most)
	}
	return nil
}

// String returns the report as a table. Combinations of several semantics appear only with violations.
func (r SemanticsReport) String() string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "cloud\tundisturbed\twith a fault\tviolations\t")
	for _, h := range r.habits {
		row := r.BySemantics[h.String()]
		if len(h) > 1 && len(r.habits) > 1 && row.Violations == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t\n", h, row.Undisturbed, row.Plans, row.Violations)
	}
	t.Flush()
	fmt.Fprintf(&out,
		"cloud semantics: %d undisturbed runs and %d plans of one fault under %d semantics or pairs of them in %.1f s, "+
			"%d violations\n",
		r.Undisturbed, r.Plans, len(r.habits), r.Took.Seconds(), len(r.Failures))
	return out.String()
}
