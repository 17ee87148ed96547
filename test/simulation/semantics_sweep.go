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

// SemanticsSweep runs each scenario under each of some semantics of the cloud: undisturbed, and with a sample of single
// faults.
type SemanticsSweep struct {
	Scenarios []Scenario
	Habits    []Habits
	// OneIn runs one in so many of the pairs of a scenario and semantics, 0 and 1 all. Each scenario has its share of all
	// semantics then, and each of them its share of the scenarios: with another seed another one.
	OneIn int
	// Faults is how many single faults are tried for each scenario and semantics, a fifth of them for one of Incidents.
	Faults  int
	Seed    uint64
	Workers int
	// Progress is reported now and then; nil for nobody.
	Progress func(done int)
	// Enough ends the sweep early, by what has gone wrong so far; nil never does.
	Enough func([]Failure) bool
}

// SemanticsReport is what came of it.
type SemanticsReport struct {
	Undisturbed, Plans int
	// By has a row for each of the semantics.
	By       map[string]*SemanticsRow
	habits   []Habits
	Failures []Failure
	Took     time.Duration
}

// SemanticsRow counts the runs under some semantics.
type SemanticsRow struct{ Undisturbed, Plans, Violations int }

// Run runs the sweep.
func (s SemanticsSweep) Run(scheme *runtime.Scheme) (SemanticsReport, error) {
	began := time.Now()
	report := SemanticsReport{By: map[string]*SemanticsRow{}, habits: s.Habits}
	for _, h := range s.Habits {
		report.By[h.String()] = &SemanticsRow{}
	}
	prepared, kind := make([]*Prepared, len(s.Scenarios)), make([]func() Result, len(s.Scenarios))
	for i, scenario := range s.Scenarios {
		p, err := scenario.Prepare(scheme)
		if err != nil {
			return SemanticsReport{}, err
		}
		prepared[i], kind[i] = p, sync.OnceValue(func() Result { return p.record(s.Seed).result })
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
		row := report.By[p.Habits.String()]
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
				Undisturbed: len(plan) == 0, Plan: plan, Err: err})
			if s.Enough != nil && s.Enough(report.Failures) {
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
					s.try(prepared[i], kind[i], s.Habits[j], check)
				}
			}
		})
	}
	workers.Wait()
	report.Took = time.Since(began)
	return report, nil
}

// try runs a scenario under some semantics. The faults are tried where they would be in a cloud that is kind: a run is
// measured by the one with the same semantics and no fault, and that by the one without semantics, whose result kind
// returns.
func (s SemanticsSweep) try(p *Prepared, kind func() Result, h Habits, check func(*Prepared, Plan, error) bool) {
	under := p.Under(h)
	r := under.record(s.Seed)
	err := r.failureBesideKind(kind())
	if !check(under, nil, err) || err != nil {
		return
	}
	all := r.faults()
	hash := fnv.New64a()
	fmt.Fprint(hash, p.Name, h, s.Seed)
	for _, at := range spread(len(all), float64(s.faultsOf(p)), hash.Sum64()) {
		disturbed := r.with(all[at], false)
		if !check(under, disturbed.plan, disturbed.failure(r.result)) {
			return
		}
	}
}

// failureBesideKind says what is wrong with an undisturbed run under semantics of the cloud, measured by the result of
// the one without.
func (r *recording) failureBesideKind(kind Result) error {
	if kind.Err != nil {
		return kind.Err
	}
	if err := r.failure(kind); err != nil {
		return err
	}
	return r.scenario.Habits.judgeMade(r, kind)
}

// faultsOf is how many faults are tried for a scenario: few where it has a cause of its own already, and is long.
func (s SemanticsSweep) faultsOf(p *Prepared) int {
	if p.Group == Incidents {
		return s.Faults / 5
	}
	return s.Faults
}

// judgeMade counts instances: where the cloud only tells things late or wrongly, and people do always the same, a
// machine is not given a second instance for it. Where calls are refused for a while, a rollout that would have removed
// a machine whose instance broke comes later, and the machine is replaced before; and who takes a fleet back once
// there is one instance comes when each of its machines has one.
func (h Habits) judgeMade(r *recording, kind Result) error {
	if r.scenario.MayDiffer != nil || r.scenario.Group != Lifecycle {
		return nil
	}
	most := kind.Made
	for _, s := range h {
		if !s.onlyReports() {
			return nil
		}
		if s == CredentialsExpire || s == ThrottledOften {
			if most = kind.Made + r.result.Broken; r.result.TakenBack {
				most = max(most, r.result.Machines)
			}
		}
	}
	if r.result.Made > most { // Fewer, where people take back what was not begun.
		return fmt.Errorf("made: %d instances were made; in a cloud that tells everything at once it is %d", r.result.Made,
			most)
	}
	return nil
}

// String returns the report for people. Of the many that are joined by others it shows those with violations.
func (r SemanticsReport) String() string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "cloud\tundisturbed\twith a fault\tviolations\t")
	for _, h := range r.habits {
		row := r.By[h.String()]
		if len(h) > 1 && len(r.habits) > 1 && row.Violations == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t\n", h, row.Undisturbed, row.Plans, row.Violations)
	}
	t.Flush()
	fmt.Fprintf(&out,
		"cloud semantics: %d undisturbed runs and %d plans of one fault under %d semantics or pairs of them in %.1f s, %d violations\n",
		r.Undisturbed, r.Plans, len(r.habits), r.Took.Seconds(), len(r.Failures))
	return out.String()
}
