package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Plans is a sweep of plans: each fault at each effect of each scenario, and pairs of faults.
type Plans struct {
	Scenarios []Scenario
	// Budget is how many plans are run, 0 for each single fault and no pairs. A budget below the number of single faults
	// gets an even sample of them. What a larger budget leaves goes to an even sample of pairs.
	//
	// A budget that suffices for all faults outside of caches runs all of these, and an even sample of the cache faults.
	// A cache of each kind can stand still or be lost at each effect, so these faults are two fifths of all single
	// faults. At two consecutive effects, they mostly cause the same run.
	Budget int
	// Pairs is how many pairs are run in addition.
	Pairs int
	// MoreVariants multiplies the variants of each scenario. 0 stands for 1.
	MoreVariants int
	// Seed is the seed of the first variant.
	Seed    uint64
	Workers int
	// Progress, if not nil, is called from time to time.
	Progress func(done int)
	// Enough, if not nil, reports whether the failures so far suffice to end the sweep early.
	Enough func([]Failure) bool
}

// sweeper is a running sweep of plans.
type sweeper struct {
	Plans
	mu     sync.Mutex
	report PlanReport
	stop   atomic.Bool
}

// Run runs the sweep.
func (s Plans) Run(scheme *runtime.Scheme) (PlanReport, error) {
	began := time.Now()
	w := &sweeper{Plans: s, report: PlanReport{Coverage: Coverage{}}}
	variants, err := w.variants(scheme)
	if err != nil {
		return PlanReport{}, err
	}
	all, ofCaches := 0, 0
	for _, v := range variants {
		all += v.singles
		ofCaches += v.ofCaches
	}
	w.report.Variants, w.report.PossibleSingles = len(variants), all
	share := shares(s.Budget, all, ofCaches)
	pairs := 0.0
	if s.Budget > all {
		pairs = float64(s.Budget-all) / float64(all)
	}
	if all > 0 {
		pairs += float64(s.Pairs) / float64(min(all, cmp.Or(s.Budget, all)))
	}
	for _, v := range variants {
		w.sweep(v, share, pairs)
	}
	w.report.Took = time.Since(began)
	return w.report, nil
}

// share is the fraction of the single faults that are run, for faults of caches and for others.
type share struct{ ofCaches, others float64 }

// shares returns the fractions that fit a budget. 0 stands for all faults.
func shares(budget, all, ofCaches int) share {
	others := all - ofCaches
	switch {
	case budget <= 0 || budget >= all:
		return share{1, 1}
	case budget > others:
		return share{float64(budget-others) / float64(ofCaches), 1}
	}
	even := float64(budget) / float64(all)
	return share{even, even}
}

func (s share) of(f Fault) float64 {
	if f.ofCache() {
		return s.ofCaches
	}
	return s.others
}

// ofCache reports whether a fault concerns the cache of a kind.
func (f Fault) ofCache() bool { return f.family() != string(f) }

// variant is a run of a scenario without faults.
type variant struct {
	scenario *Prepared
	seed     uint64
	// singles is the number of single faults, ofCaches the number of those that concern caches.
	singles, ofCaches int
}

// variants runs each variant of each scenario without faults.
func (s *sweeper) variants(scheme *runtime.Scheme) ([]variant, error) {
	out := make([][]variant, len(s.Scenarios))
	errs := make([]error, len(s.Scenarios))
	s.each(len(s.Scenarios), func(i int) {
		p, err := s.Scenarios[i].Prepare(scheme)
		if err != nil {
			errs[i] = err
			return
		}
		for n := range max(1, p.Variants) * max(1, s.MoreVariants) {
			v := variant{scenario: p, seed: s.Seed + uint64(n)}
			r := p.record(v.seed)
			if r.result.Err != nil {
				s.check(r, r)
				continue
			}
			for _, at := range r.faults() {
				v.singles++
				if at.Fault.ofCache() {
					v.ofCaches++
				}
			}
			s.mu.Lock()
			s.report.Coverage.possible(r)
			s.report.Effects += len(r.effects)
			s.mu.Unlock()
			out[i] = append(out[i], v)
		}
	})
	var all []variant
	for _, v := range out {
		all = append(all, v...)
	}
	return all, errors.Join(errs...)
}

// each calls f for each index, with as many concurrent calls as there are workers.
func (s *sweeper) each(n int, f func(i int)) {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range max(s.Workers, 1) {
		wg.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= n || s.stop.Load() {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}

// sweep runs a share of the single faults of a variant, and for each of them a number of pairs that begin with it.
func (s *sweeper) sweep(v variant, share share, pairs float64) {
	r := v.scenario.record(v.seed)
	singles := r.sample(share)
	s.each(len(singles), func(i int) {
		at := singles[i]
		hash := (&recording{scenario: r.scenario, seed: r.seed, plan: append(slices.Clip(r.plan), at)}).hash()
		hasPairs := roundByHash(pairs, hash) > 0
		first := r.with(at, hasPairs)
		s.check(r, first)
		if !hasPairs || first.result.Err != nil {
			return
		}
		seconds := first.faults()
		for _, j := range spread(len(seconds), pairs, hash) {
			if s.stop.Load() {
				return
			}
			s.check(r, first.with(seconds[j], false))
		}
	})
}

// hash returns a number that depends only on the scenario, the seed and the plan.
func (r *recording) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.scenario.Name, r.seed, r.plan)
	return h.Sum64()
}

// sample returns an even sample of the single faults: of each fault the same share of the effects.
func (r *recording) sample(share share) []At {
	all := r.faults()
	if share.ofCaches >= 1 && share.others >= 1 {
		return all
	}
	var out []At
	seen := map[Fault]int{}
	for _, at := range all {
		n := seen[at.Fault]
		seen[at.Fault]++
		// Each fault begins at another offset. Otherwise a small sample would contain only the first effects.
		offset := fraction(Plan{{0, at.Fault}}.String() + r.scenario.Name)
		part := share.of(at.Fault)
		if int(float64(n+1)*part+offset) > int(float64(n)*part+offset) {
			out = append(out, at)
		}
	}
	return out
}

func fraction(text string) float64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return float64(h.Sum64()%1_000_003) / 1_000_003
}

// spread returns about that many of n indexes, evenly spaced. It rounds as roundByHash does.
func spread(n int, many float64, hash uint64) []int {
	count := min(roundByHash(many, hash), n)
	var out []int
	for i := range count {
		out = append(out, (int(hash%uint64(n))+i*n/count)%n)
	}
	return out
}

// roundByHash rounds a number up or down. The fraction is the probability of rounding up, and the hash decides.
func roundByHash(many float64, hash uint64) int {
	count := int(many)
	if float64(hash>>32%1000)/1000 < many-float64(count) {
		count++
	}
	return count
}

// check records the result of a plan.
func (s *sweeper) check(undisturbed, r *recording) {
	err := r.failure(undisturbed.result)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch len(r.plan) {
	case 0:
		err = fmt.Errorf("undisturbed: %w", err)
	case 1:
		s.report.Singles++
		s.report.Coverage.done(r)
	default:
		s.report.Pairs++
	}
	s.report.Steps += int64(r.result.Steps)
	if err != nil {
		s.report.Failures = append(s.report.Failures, Failure{Scenario: r.scenario.Name, Seed: r.seed,
			Habits: r.scenario.Habits, Undisturbed: len(r.plan) == 0, Plan: r.plan, Err: err})
		if s.Enough != nil && s.Enough(s.report.Failures) {
			s.stop.Store(true)
		}
	}
	if done := s.report.Singles + s.report.Pairs; s.Progress != nil && done%5000 == 0 {
		s.Progress(done)
	}
}

// stepsFactor and stepsMore limit the steps of a run from its last fault until it is settled: a multiple of the steps
// of the whole undisturbed run, and some more for waiting and retries.
const (
	stepsFactor = 6
	stepsMore   = 1500
)

// failure returns what is wrong with a run, compared with the result of the undisturbed run.
func (r *recording) failure(undisturbed Result) error {
	if r.result.Err != nil {
		return r.result.Err
	}
	if most := stepsFactor*undisturbed.Tail + stepsMore; r.result.Tail > most {
		return fmt.Errorf("%d steps from the last fault until the run settled, want at most %d; the undisturbed run has %d",
			r.result.Tail, most, undisturbed.Tail)
	}
	got, want := r.result.End, undisturbed.End
	if f := r.scenario.MayDiffer; f != nil {
		f(got)
		want = want.clone()
		f(want)
	}
	if difference := got.difference(want); difference != "" {
		return fmt.Errorf("the end differs from the end of the undisturbed run:\n    %s", difference)
	}
	return nil
}
