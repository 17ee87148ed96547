package simulation

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Sweep is a number of runs with random faults.
type Sweep struct {
	Scenarios []Scenario
	// Runs is the number of runs, which is divided among the scenarios. Seed is the seed of the first run.
	Runs int
	Seed uint64
	// Workers is the number of concurrent runs. Each run uses one thread.
	Workers int
	// Progress, if not nil, is called from time to time.
	Progress func(done int)
	// Enough, if not nil, reports whether the failures so far suffice to end the sweep early.
	Enough func([]Failure) bool
}

// Failure is a failed run.
type Failure struct {
	Scenario string
	Seed     uint64
	// Habits are the semantics of its cloud.
	Habits Habits
	// Undisturbed is true for a run without faults. Plan is empty then, as it is for a random run.
	Undisturbed bool
	Plan        Plan
	// Corruption is the change of a field, or nil if no field is changed.
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

// MarshalJSON returns the failure as an object of strings, with the command line that repeats it.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{
		"scenario": f.Scenario, "seed": fmt.Sprint(f.Seed), "cloud": f.Habits.String(), "plan": f.Plan.String(),
		"error": f.Err.Error(), "repeat": f.repeat(),
	})
}

// repeat returns the command line that repeats the failure.
func (f Failure) repeat() string {
	line := fmt.Sprintf("go run ./test/simulate --scenario %s --seed %d --story", f.Scenario, f.Seed)
	if len(f.Habits) > 0 {
		line += fmt.Sprintf(" --cloud %s", f.Habits)
	}
	if f.Undisturbed {
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

// String returns the failure with the command line that repeats it.
func (f Failure) String() string {
	return fmt.Sprintf("seed %d: %v\n  to repeat: %s", f.Seed, f.Err, f.repeat())
}
