package world

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Sweep is many runs.
type Sweep struct {
	Scenarios []Scenario
	// Runs is how many, shared by the scenarios. Seed is the first one's.
	Runs int
	Seed uint64
	// EachEffect tries each fault at each effect of runs that are otherwise undisturbed, seed by seed until there were as
	// many runs, instead of faults at random.
	EachEffect bool
	// Workers is how many runs go side by side, each in one thread.
	Workers int
	// Progress is told now and then; nil for nobody.
	Progress func(done int)
	// Enough ends the sweep early, by what has gone wrong so far; nil never does.
	Enough func([]Failure) bool
}

// Failure is a run that went wrong.
type Failure struct {
	Scenario string
	Seed     uint64
	At       At
	Err      error
}

// Report is what came of a sweep.
type Report struct {
	Runs, Steps, Effects, Crashes int64
	Failures                      []Failure
	Took                          time.Duration
}

// Run runs the sweep.
func (s Sweep) Run(scheme *runtime.Scheme) (Report, error) {
	prepared := make([]*Prepared, len(s.Scenarios))
	for i, scenario := range s.Scenarios {
		var err error
		if prepared[i], err = scenario.Prepare(scheme); err != nil {
			return Report{}, err
		}
	}
	runs := func(i int) run { return run{prepared[i%len(prepared)], s.Seed + uint64(i), At{}} }
	if s.EachEffect {
		planned, err := s.planned(prepared)
		if err != nil {
			return Report{}, err
		}
		runs = func(i int) run { return planned[i] }
	}
	var (
		next   atomic.Int64
		mu     sync.Mutex
		report Report
		stop   bool
		wg     sync.WaitGroup
	)
	began := time.Now()
	for range max(s.Workers, 1) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(s.Runs) {
					return
				}
				r := runs(int(i))
				result := r.scenario.Run(r.seed, r.at, nil)
				mu.Lock()
				report.Runs++
				report.Steps += int64(result.Steps)
				report.Effects += int64(result.Effects)
				report.Crashes += int64(result.Crashes)
				if result.Err != nil {
					report.Failures = append(report.Failures, Failure{r.scenario.Name, r.seed, r.at, result.Err})
				}
				stop = stop || result.Err != nil && s.Enough != nil && s.Enough(report.Failures)
				enough := stop
				if s.Progress != nil && report.Runs%1000 == 0 {
					s.Progress(int(report.Runs))
				}
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	wg.Wait()
	report.Took = time.Since(began)
	return report, nil
}

// run is one of a sweep.
type run struct {
	scenario *Prepared
	seed     uint64
	at       At
}

// planned returns as many runs as were asked for, each with one fault at one effect.
func (s Sweep) planned(prepared []*Prepared) ([]run, error) {
	var out []run
	for seed := s.Seed; ; seed++ {
		for _, p := range prepared {
			plans, err := p.plans(seed)
			if err != nil {
				return nil, err
			}
			for _, at := range plans {
				if len(out) == s.Runs {
					return out, nil
				}
				out = append(out, run{p, seed, at})
			}
		}
	}
}

// String returns the failure with the line that repeats it.
func (f Failure) String() string {
	line := fmt.Sprintf("go run ./test/simulate --scenario %s --seed %d --story", f.Scenario, f.Seed)
	if f.At.Fault != NoFault {
		line += fmt.Sprintf(" --at %d --fault %q", f.At.Effect, f.At.Fault)
	}
	return fmt.Sprintf("seed %d: %v\n  to repeat: %s", f.Seed, f.Err, line)
}
