package simulation

import (
	"fmt"
	"math/rand/v2"
)

// breakagesToExplore is the number of effects for each kind of breakage.
const breakagesToExplore = 50

// Explore records the undisturbed run of a seed, and then runs random plans based on it. In each round, it runs a
// plan with one fault or breakage, and then adds a fault. Explore calls check with each result, beginning with the
// undisturbed run, and stops when check returns false.
func (p *Prepared) Explore(seed uint64, choices *rand.Rand, check func(Plan, error) (more bool)) {
	undisturbed := p.record(seed)
	if err := undisturbed.result.Err; err != nil {
		check(nil, fmt.Errorf("undisturbed: %w", err))
		return
	}
	possible := undisturbed.faults()
	if len(possible) == 0 || !check(nil, nil) {
		return
	}
	broken := undisturbed.breakages(breakagesToExplore)
	for {
		at := possible[choices.IntN(len(possible))]
		if len(broken) > 0 && choices.IntN(4) == 0 {
			at = broken[choices.IntN(len(broken))]
		}
		first := undisturbed.withFault(at, true)
		if !check(first.plan, first.failure(undisturbed.result)) {
			return
		}
		seconds := first.faults()
		if first.result.Err != nil || len(seconds) == 0 {
			continue
		}
		second := first.withFault(seconds[choices.IntN(len(seconds))], false)
		if !check(second.plan, second.failure(undisturbed.result)) {
			return
		}
	}
}
