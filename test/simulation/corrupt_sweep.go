package simulation

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Corruptions configures a series of runs in which one field of a stored object is changed. In selected states of each
// scenario, the sweep makes every kind of change to every field of every object.
type Corruptions struct {
	Scenarios []Scenario
	// Budget is the number of corruptions in all scenarios together. 0 means all.
	Budget int
	// States is how many states of each scenario the sweep corrupts, in addition to the first and the last state.
	States  int
	Seed    uint64
	Workers int
	// FieldPattern restricts the sweep to fields whose name in reports matches this pattern. Nil means all fields.
	FieldPattern *regexp.Regexp
	// Progress, if set, is called from time to time.
	Progress func(done int)
	// StopEarly is called with the failures so far, unless it is nil. If the function returns true, the sweep ends
	// early.
	StopEarly func([]Failure) bool
}

type candidate struct {
	Corruption
	group string
	// sortKey is a number from 0 to 1 by which the candidates of a group are sorted. The value is a hash of the
	// corruption.
	sortKey float64
	rank    float64
}

// Run runs the sweep.
func (s Corruptions) Run(scheme *runtime.Scheme) (CorruptionReport, error) {
	began := time.Now()
	report := CorruptionReport{ByField: map[string]CorruptionCounts{}, ChangeKinds: map[string]bool{}}
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		next    atomic.Int64
		stop    atomic.Bool
		errs    []error
	)
	for range max(s.Workers, 1) {
		workers.Go(func() {
			for !stop.Load() {
				i := int(next.Add(1) - 1)
				if i >= len(s.Scenarios) {
					return
				}
				r, candidates, err := s.candidates(scheme, i)
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					continue
				}
				mu.Lock()
				report.notePossible(candidates)
				mu.Unlock()
				// The last scenarios get the remainder.
				left := s.Budget
				if s.Budget > 0 {
					left = s.Budget*(i+1)/len(s.Scenarios) - s.Budget*i/len(s.Scenarios)
				}
				for _, c := range candidates {
					if stop.Load() || s.Budget > 0 && left <= 0 {
						break
					}
					outcome, err := r.corruptedRun(c.Corruption, nil)
					if errors.Is(err, errNoSuchField) {
						continue
					}
					if outcome != OutcomeNotAdmitted {
						left--
					}
					mu.Lock()
					report.noteOutcome(r, c, outcome, err)
					if outcome == OutcomeViolated && s.StopEarly != nil && s.StopEarly(report.Failures) {
						stop.Store(true)
					}
					if s.Progress != nil && report.RunCount%1000 == 0 && outcome != OutcomeNotAdmitted {
						s.Progress(report.RunCount)
					}
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	report.Took = time.Since(began)
	return report, errors.Join(errs...)
}

// candidates returns the undisturbed run of a scenario and its possible corruptions. For every n, the first n
// corruptions are an even sample. The list begins with one corruption for each pair of a field and a kind of change.
// The order of these pairs differs between scenarios.
func (s Corruptions) candidates(scheme *runtime.Scheme, i int) (*recording, []candidate, error) {
	p, err := s.Scenarios[i].Prepare(scheme)
	if err != nil {
		return nil, nil, err
	}
	r := p.record(s.Seed)
	if r.result.Err != nil {
		return nil, nil, r.result.Err
	}
	var all []candidate
	for _, effect := range r.states(s.States) {
		w, err := r.stateAt(effect)
		if err != nil {
			return nil, nil, err
		}
		objects, err := w.storedObjects()
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			paths, err := pathsOf(objects, o)
			if err != nil {
				return nil, nil, err
			}
			for _, path := range paths {
				f := o.Field
				f.Path = path
				if s.FieldPattern != nil && !s.FieldPattern.MatchString(f.ReportName()) {
					continue
				}
				for _, how := range Hows() {
					if _, _, possible := w.newValue(objects, o, path, how); possible {
						c := Corruption{effect, f, how}
						all = append(all, candidate{c, f.ReportName() + "=" + string(how), fraction(c.String()), 0})
					}
				}
			}
		}
	}
	// Within a group, states and objects are in random order. The order of the groups depends on the scenario.
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.sortKey, b.sortKey))
	})
	nth := 0
	for j := range all {
		if nth++; j == 0 || all[j].group != all[j-1].group {
			nth = 0
		}
		_, shift := modf(fraction(all[j].group) + float64(i)*goldenRatio)
		all[j].rank = float64(nth) + shift
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	return r, all, nil
}

const goldenRatio = 0.6180339887498949

func modf(x float64) (whole int, part float64) {
	whole = int(x)
	return whole, x - float64(whole)
}

// states selects the effects at which fields are changed: the first one, the last one, and n effects that are evenly
// distributed over the run.
func (r *recording) states(n int) (out []int) {
	if len(r.points) > 0 {
		for i := range n + 1 {
			out = append(out, r.points[i*(len(r.points)-1)/max(n, 1)].effect)
		}
	}
	return append(slices.Compact(out), AtEnd)
}

// pathsOf returns the paths of all fields in an object, in other objects of its kind, or in its earlier versions.
func pathsOf(objects []stored, o stored) (paths [][]string, err error) {
	seen := map[string]bool{}
	add := func(c content) {
		for _, path := range fieldsOf(o.Kind, c) {
			if key := strings.Join(path, "\x00"); !seen[key] {
				seen[key] = true
				paths = append(paths, path)
			}
		}
	}
	add(o.content)
	for _, other := range objects {
		if other.Cluster == o.Cluster && other.Kind == o.Kind {
			add(other.content)
		}
	}
	if o.earlierVersions == nil {
		return paths, nil
	}
	before, err := o.earlierVersions()
	for _, c := range slices.Backward(before) {
		add(c)
	}
	return paths, err
}
