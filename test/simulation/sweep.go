package simulation

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Sweep runs scenarios with random faults.
type Sweep struct {
	Scenarios []Scenario
	// Runs is the total number of runs for all scenarios. The runs have consecutive seeds, beginning with Seed.
	Runs int
	Seed uint64
	// Workers is the number of concurrent runs. Each run uses one thread.
	Workers int
	// Progress, if set, is called from time to time.
	Progress func(done int)
	// StopEarly, if set, ends the sweep early by returning true for the failures so far.
	StopEarly func([]Failure) bool
}

// Failure is a failed run.
type Failure struct {
	Scenario string
	Seed     uint64
	// Habits contains the unusual behaviors of the cloud in this run.
	Habits Habits
	// WithoutFaults is true if the run had no faults. Plan is empty if the run had no faults or random faults.
	WithoutFaults bool
	Plan          Plan
	// Corruption is the change of a field in this run, or nil.
	Corruption *Corruption
	Err        error
}

// Report is the result of a sweep.
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
				result := p.Run(seed, nil, nil)
				mu.Lock()
				report.Runs++
				report.Steps += int64(result.Steps)
				report.Effects += int64(result.Effects)
				report.Crashes += int64(result.Crashes)
				if result.Err != nil {
					report.Failures = append(report.Failures, Failure{Scenario: p.Name, Seed: seed, Habits: p.Habits,
						Err: result.Err})
				}
				stop = stop || result.Err != nil && s.StopEarly != nil && s.StopEarly(report.Failures)
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

// MarshalJSON returns the failure as an object of strings, one of which is a command that repeats the run.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{
		"scenario": f.Scenario, "seed": fmt.Sprint(f.Seed), "cloud": f.Habits.String(), "plan": f.Plan.String(),
		"error": f.Err.Error(), "repeat": f.repeat(),
	})
}

func (f Failure) repeat() string {
	line := fmt.Sprintf("go run ./test/simulate --scenario %s --seed %d --story", f.Scenario, f.Seed)
	if len(f.Habits) > 0 {
		line += fmt.Sprintf(" --cloud %s", f.Habits)
	}
	if f.WithoutFaults {
		line += " --undisturbed"
	}
	if len(f.Plan) > 0 {
		line += fmt.Sprintf(" --plan %q", f.Plan)
	}
	if f.Corruption != nil {
		line += fmt.Sprintf(" --corrupt '%s'", f.Corruption)
	}
	return line
}

// String returns a description of the failure, with a command that repeats the run.
func (f Failure) String() string {
	return fmt.Sprintf("seed %d: %v\n  to repeat: %s", f.Seed, f.Err, f.repeat())
}
