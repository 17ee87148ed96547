package simulation

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/machinestates"
)

// Recording selects the runs in which the states of Machines are recorded.
type Recording struct {
	// Seeds is the number of random runs for each scenario. Each scenario also runs once for each entry of Habits, with
	// the cloud semantics in this entry.
	Seeds   int
	Habits  []Habits
	Seed    uint64
	Workers int
}

// Run returns the states of Machines that processes of Machinist have stored.
func (r Recording) Run(scenarios []Scenario, scheme *runtime.Scheme) (machinestates.States, error) {
	var (
		mu      sync.Mutex
		failed  error
		working sync.WaitGroup
	)
	states, next := machinestates.States{}, make(chan Scenario)
	for range max(r.Workers, 1) {
		working.Go(func() {
			for s := range next {
				found, err := r.statesOf(s, scheme)
				mu.Lock()
				if err != nil {
					failed = err
				}
				states.Merge(found)
				mu.Unlock()
			}
		})
	}
	for _, s := range scenarios {
		next <- s
	}
	close(next)
	working.Wait()
	return states, failed
}

func (r Recording) statesOf(s Scenario, scheme *runtime.Scheme) (machinestates.States, error) {
	states := machinestates.States{}
	p, err := s.Prepare(scheme)
	if err != nil {
		return nil, err
	}
	run := func(p Prepared, run func(*Prepared) Result) error {
		found := machinestates.States{}
		p.OnStored = func(m *v1beta1.Machine) { found.Add(m) }
		if result := run(&p); result.Err != nil {
			return fmt.Errorf("scenario %s, cloud %q: %w", s.Name, p.Habits, result.Err)
		}
		states.Merge(found)
		return nil
	}
	undisturbed := func(p *Prepared) Result { return p.RunWithoutFaults(r.Seed, nil) }
	if err := run(*p, undisturbed); err != nil {
		return nil, err
	}
	for _, h := range r.Habits {
		if s.OwnCloud {
			break
		}
		if err := run(*p.Under(h), undisturbed); err != nil {
			return nil, err
		}
	}
	for i := range r.Seeds {
		if err := run(*p, func(p *Prepared) Result { return p.Run(r.Seed+uint64(i), nil, nil) }); err != nil {
			return nil, err
		}
	}
	return states, nil
}
