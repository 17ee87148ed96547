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

// Plans configures a series of runs with planned faults. The sweep tries each fault at each effect of each scenario,
// and pairs of faults.
type Plans struct {
	Scenarios []Scenario
	// Budget is the number of plans to run. 0 means all plans with one fault, and no pairs. With a smaller budget, the
	// sweep runs a part of these plans, which are spread evenly. With a larger budget, the sweep also runs pairs of
	// faults, which are spread evenly over all pairs.
	//
	// If the budget is too small for all faults, the sweep first reduces the faults of caches to an even sample. Two
	// fifths of all single faults affect caches, because the cache of each kind can stop or be lost at each effect. Two
	// cache faults of the same kind at consecutive effects usually have the same consequences.
	Budget int
	// Pairs is the number of additional runs with a pair of faults.
	Pairs int
	// Breakages is the number of effects of each scenario at which each kind of breakage happens. These plans count for
	// the budget.
	Breakages int
	// MoreVariants multiplies the number of variants of each scenario. 0 means 1.
	MoreVariants int
	// Seed is the seed of the first variant of each scenario.
	Seed    uint64
	Workers int
	// Progress, if set, is called from time to time.
	Progress func(done int)
	// The sweep calls StopEarly with the failures so far, unless StopEarly is nil. If StopEarly returns true, the
	// sweep ends early.
	StopEarly func([]Failure) bool
}

type sweeper struct {
	Plans
	mu     sync.Mutex
	report PlanReport
	stop   atomic.Bool
}

// Run runs the sweep.
func (s Plans) Run(scheme *runtime.Scheme) (PlanReport, error) {
	began := time.Now()
	w := &sweeper{Plans: s, report: newPlanReport()}
	variants, err := w.variants(scheme)
	if err != nil {
		return PlanReport{}, err
	}
	all, ofCaches, breakages := 0, 0, 0
	for _, v := range variants {
		all += v.singles
		ofCaches += v.ofCaches
		breakages += v.breakages
	}
	w.report.Variants, w.report.PossibleSingles = len(variants), all
	budget := s.Budget
	if budget > 0 {
		budget = max(1, budget-breakages)
	}
	share := shares(budget, all, ofCaches)
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

// share contains two fractions of the single faults to run: one for faults of caches, and one for all other faults.
type share struct{ ofCaches, others float64 }

// shares computes the fractions of the faults that fit into a budget. If the budget is 0, all faults are run.
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

func (s share) fractionFor(f Fault) float64 {
	if f.ofCache() {
		return s.ofCaches
	}
	return s.others
}

func (f Fault) ofCache() bool { return f.family() != string(f) }

type variant struct {
	scenario          *Prepared
	seed              uint64
	singles, ofCaches int
	// breakages is the number of plans with a breakage. Only the first variant of a scenario has such plans.
	breakages int
}

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
			if n == 0 {
				v.breakages = len(r.breakages(s.Breakages))
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

// sweep runs a share of the single faults of a variant. For each single fault, sweep also runs a number of pairs that
// begin with this fault.
func (s *sweeper) sweep(v variant, share share, pairs float64) {
	r := v.scenario.record(v.seed)
	singles := r.sample(share)
	if v.breakages > 0 {
		singles = append(r.breakages(s.Breakages), singles...)
	}
	s.each(len(singles), func(i int) {
		at := singles[i]
		hash := (&recording{scenario: r.scenario, seed: r.seed, plan: append(slices.Clip(r.plan), at)}).hash()
		hasPairs := i >= v.breakages && roundByHash(pairs, hash) > 0
		first := r.withFault(at, hasPairs)
		s.check(r, first)
		if !hasPairs || first.result.Err != nil {
			return
		}
		seconds := first.faults()
		for _, j := range spreadIndexes(len(seconds), pairs, hash) {
			if s.stop.Load() {
				return
			}
			s.check(r, first.withFault(seconds[j], false))
		}
	})
}

func (r *recording) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.scenario.Name, r.seed, r.plan)
	return h.Sum64()
}

// sample returns single faults that are evenly distributed among the effects. For each fault, the sample contains the
// same percentage of the effects at which the fault is possible.
func (r *recording) sample(share share) []FaultAt {
	all := r.faults()
	if share.ofCaches >= 1 && share.others >= 1 {
		return all
	}
	var out []FaultAt
	seen := map[Fault]int{}
	for _, at := range all {
		n := seen[at.Fault]
		seen[at.Fault]++
		// Each kind of fault begins at another effect. Otherwise, a small sample would only contain effects at the
		// beginning of the run.
		offset := fraction(Plan{{0, at.Fault}}.String() + r.scenario.Name)
		part := share.fractionFor(at.Fault)
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

// spreadIndexes returns evenly spaced indexes below n. The number of indexes is many, rounded with roundByHash.
func spreadIndexes(n int, many float64, hash uint64) []int {
	count := min(roundByHash(many, hash), n)
	var out []int
	for i := range count {
		out = append(out, (int(hash%uint64(n))+i*n/count)%n)
	}
	return out
}

// roundByHash rounds a number up or down. The fractional part is the probability of rounding up.
func roundByHash(many float64, hash uint64) int {
	count := int(many)
	if float64(hash>>32%1000)/1000 < many-float64(count) {
		count++
	}
	return count
}

func (s *sweeper) check(undisturbed, r *recording) {
	err := r.failure(undisturbed.result)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch len(r.plan) {
	case 0:
		err = fmt.Errorf("undisturbed: %w", err)
	case 1:
		if r.plan.hasBreakage() {
			s.report.Breakages[r.plan[0].Fault]++
		} else {
			s.report.Singles++
			s.report.Coverage.done(r)
		}
	default:
		s.report.Pairs++
	}
	s.report.Steps += int64(r.result.Steps)
	for rule, n := range r.result.Judged {
		s.report.Judged[rule] += n
	}
	if err != nil {
		s.report.Failures = append(s.report.Failures, Failure{Scenario: r.scenario.Name, Seed: r.seed,
			Habits: r.scenario.Habits, WithoutFaults: len(r.plan) == 0, Plan: r.plan, Err: err})
		if s.StopEarly != nil && s.StopEarly(s.report.Failures) {
			s.stop.Store(true)
		}
	}
	if done := s.report.done(); s.Progress != nil && done%5000 == 0 {
		s.Progress(done)
	}
}

// stepsFactor and stepsMore limit the steps after the last fault of a run. The limit is a multiple of the steps of the
// undisturbed run, plus additional steps for waits and retries.
const (
	stepsFactor = 6
	stepsMore   = 1500
)

// failure returns an error if the run failed, or if its result differs from that of the undisturbed run.
func (r *recording) failure(undisturbed Result) error {
	if r.result.Err != nil {
		return r.result.Err
	}
	if most := stepsFactor*undisturbed.SettleSteps + stepsMore; r.result.SettleSteps > most {
		return fmt.Errorf("%d steps from the last fault until the run settled, want at most %d; the undisturbed run has %d",
			r.result.SettleSteps, most, undisturbed.SettleSteps)
	}
	got, want := r.result.FinalState, undisturbed.FinalState
	if f := r.scenario.MayDiffer; f != nil {
		f(got)
		want = want.clone()
		f(want)
	}
	if r.plan.hasBreakage() {
		got, want = got.withoutRequests(), want.withoutRequests()
	}
	if difference := got.difference(want); difference != "" {
		return fmt.Errorf("the end differs from the end of the undisturbed run:\n    %s", difference)
	}
	return nil
}
