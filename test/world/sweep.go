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
				p, seed := prepared[int(i)%len(prepared)], s.Seed+uint64(i)
				result := p.Run(seed, nil)
				mu.Lock()
				report.Runs++
				report.Steps += int64(result.Steps)
				report.Effects += int64(result.Effects)
				report.Crashes += int64(result.Crashes)
				if result.Err != nil {
					report.Failures = append(report.Failures, Failure{p.Name, seed, result.Err})
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

// String returns the failure with the line that repeats it.
func (f Failure) String() string {
	return fmt.Sprintf("%v\n  to repeat: go run ./test/simulate --scenario %s --seed %d --story", f.Err, f.Scenario, f.Seed)
}
