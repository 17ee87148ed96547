package simulation

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
)

// Outcome is the result of a corruption.
type Outcome string

// These are the outcomes.
const (
	// OutcomeNotAdmitted: an API server rejects the change.
	OutcomeNotAdmitted Outcome = "refused by admission"
	// OutcomeRepaired: the field has its regular value again, and the run ends like the undisturbed run.
	OutcomeRepaired Outcome = "repaired"
	// OutcomeHarmless means that the field keeps the changed value, and that the run otherwise ends like the run
	// without the corruption.
	OutcomeHarmless Outcome = "harmless"
	// OutcomeNamed: a condition or an event of the corrupted object, its owner or its children reports the problem.
	// No instance is lost or leaked.
	OutcomeNamed Outcome = "named"
	// OutcomeAskedFor: Machinist did what the changed field requests according to its documentation.
	OutcomeAskedFor Outcome = "asked for"
	// OutcomeViolated means that the run has none of the other outcomes.
	OutcomeViolated Outcome = "violation"
)

// Outcomes returns all outcomes in the order of the columns in a report.
func Outcomes() []Outcome {
	return []Outcome{OutcomeNotAdmitted, OutcomeRepaired, OutcomeHarmless, OutcomeNamed, OutcomeAskedFor, OutcomeViolated}
}

// These constants limit the actions of processes that wait for a repair. The limits apply to a period of length
// shortWatch.
const (
	maxWrites = 12
	mostSteps = 2500
)

func (r *recording) corruptedRun(c Corruption, story func(string)) (Outcome, error) {
	w, err := r.stateAt(c.Effect)
	if err != nil {
		return OutcomeViolated, err
	}
	w.story = story
	err = w.corrupt(c, false)
	var refused refusedError
	switch {
	case errors.As(err, &refused):
		return OutcomeNotAdmitted, nil
	case err != nil:
		return "", err
	}
	existing := map[string]bool{}
	for _, in := range w.cloud.instances {
		existing[in.ProviderID] = true
	}
	return w.judgeCorruption(r, existing)
}

// Corrupt records the run of a seed, and then runs one corruption in it. story, if set, receives a line for each event
// after the corruption.
func (p *Prepared) Corrupt(seed uint64, c Corruption, story func(string)) (Outcome, error) {
	r := p.record(seed)
	if r.result.Err != nil {
		return "", r.result.Err
	}
	return r.corruptedRun(c, story)
}

// stateAt returns a copy of the world before an effect of the run, or at the end of the run.
func (r *recording) stateAt(effect int) (*World, error) {
	if effect == AtEnd {
		if r.end == nil {
			return nil, fmt.Errorf("the undisturbed run has not reached its end")
		}
		return r.end.snapshot()
	}
	for _, p := range r.points {
		if p.effect >= effect {
			return p.world.snapshot()
		}
	}
	return nil, fmt.Errorf("the run has no effect %d", effect)
}

func (w *World) judgeCorruption(r *recording, existing map[string]bool) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = OutcomeViolated, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.hasPlan, w.faults = true, nil
	w.check()
	unsettled := unsettledError{}
	err = w.oracle.failure()
	if err == nil {
		err = w.Run(SettledDifference)
	}
	asks, named := w.corrupted.asks, w.reportedProblems(r.end)
	may := w.corrupted.permits
	if err != nil {
		if !errors.As(err, &unsettled) {
			return OutcomeViolated, err
		}
		most := maxWrites
		if asks != nil && asks.mayLose {
			most *= 10 // The request may replace machines meanwhile.
		}
		if busy := w.checkQuiet(most); busy != nil {
			return OutcomeViolated, fmt.Errorf("%w; %w", err, busy)
		}
	}
	if lost := w.lostInstance(r, existing); lost != "" && !may(func(a *meaning) bool { return a.mayLose }) && !r.losesAnyway(w) {
		return OutcomeViolated, fmt.Errorf("instance %s is lost (%s)", lost, named)
	}
	if leaked := w.leaked(r); leaked != "" && !may(func(a *meaning) bool { return a.mayLeak }) {
		return OutcomeViolated, fmt.Errorf("instance %s leaks (%s)", leaked, named)
	}
	if err != nil {
		// Events disappear, so only a condition can explain for how long as necessary why the fleet waits.
		if len(named.conditions) == 0 {
			return OutcomeViolated, fmt.Errorf("no condition of a related object names the corruption: %w", err)
		}
		return OutcomeNamed, nil
	}
	got := r.comparable(endOf(w))
	difference := got.difference(r.comparable(r.result.FinalState))
	switch {
	case difference == "" && w.isRepaired(r):
		return OutcomeRepaired, nil
	case difference == "":
		return OutcomeHarmless, nil
	case may(func(a *meaning) bool { return a.mayDiffer || a.mayLose || a.mayLeak }) || w.corrupted.mayLeak():
		return OutcomeAskedFor, nil
	case named.any():
		return OutcomeNamed, nil
	case r.endsAnyway(w, got):
		return OutcomeHarmless, nil
	}
	return OutcomeViolated, fmt.Errorf("no condition or event explains the difference from the undisturbed run:\n    %s", difference)
}

// extremeText matches a text that a corruption of the kind ChangeHighest has written, and the characters around this
// text. Machinist does not remove conditions with such a type, because another client has written them.
var extremeText = regexp.MustCompile(` ?x{200,}[^ \]]*`)

func withoutExtremes(e End) End {
	out := End{}
	for line, n := range e {
		out[extremeText.ReplaceAllString(line, "")] += n
	}
	return out
}

// checkQuiet checks a world in which processes wait for a repair. Meanwhile, the processes may take only a limited
// number of steps, and send only a limited number of calls and writes.
func (w *World) checkQuiet(most int) error {
	steps, calls, control, target := w.steps, w.cloud.changeCount, w.control.Revision(), w.target.Revision()
	if err := w.runFor(shortWatch); err != nil {
		return err
	}
	n := w.cloud.changeCount - calls
	for _, c := range slices.Concat(w.control.Changes(control), w.target.Changes(target)) {
		if c.GVK.Kind != "Lease" { // A leader renews its Lease all the time.
			n++
		}
	}
	if n > most {
		return fmt.Errorf("%d writes and cloud calls within %s while the processes only wait: %s", n, shortWatch,
			w.oracle.lastWrites(control, target))
	}
	if n := w.steps - steps; n > mostSteps {
		return fmt.Errorf("%d steps within %s while the processes only wait", n, shortWatch)
	}
	return nil
}

// lostInstance returns an instance that no longer exists although its machine is still wanted, or "". While machines
// are being deleted, the order of actions decides which instances are deleted. In this case, the number of created
// instances is compared with the undisturbed run.
func (w *World) lostInstance(r *recording, existing map[string]bool) string {
	if w.corrupted.Effect != AtEnd {
		// In another order of actions, a machine may be deleted before it gets an instance.
		most := max(r.result.CreatedInstances, r.end.everMade())
		if made := w.cloud.madeInAll(); made > most && r.scenario.MayDiffer == nil && r.scenario.Group == Lifecycle {
			return fmt.Sprintf("of unknown name (%d were created, and %d are enough)", made, most)
		}
		return ""
	}
	for _, in := range r.end.cloud.instances {
		if now := w.cloud.byID(in.ProviderID); existing[in.ProviderID] && (now == nil || !now.dying.IsZero()) {
			return in.ProviderID
		}
	}
	return ""
}

// losesAnyway reports whether a run without the corruption can create at least the same number of instances. Any write
// can change the order of actions, so other orders are tried.
func (r *recording) losesAnyway(of *World) bool {
	return r.inAnotherOrder(of, func(w *World) bool { return w.cloud.madeInAll() >= of.cloud.madeInAll() })
}

// endsAnyway reports whether the same final state is possible without the corruption, if the actions have another
// order.
func (r *recording) endsAnyway(of *World, end End) bool {
	return r.inAnotherOrder(of, func(w *World) bool { return r.comparable(endOf(w)).difference(end) == "" })
}

// inAnotherOrder repeats the run from the same state without the corruption, each time with another order of actions.
// The function reports whether the given condition is true at the end of one of these runs.
func (r *recording) inAnotherOrder(of *World, is func(*World) bool) bool {
	if of.corrupted.Effect == AtEnd {
		return false
	}
	for touches := range 40 {
		w, err := r.stateAt(of.corrupted.Effect)
		if err != nil {
			return false
		}
		w.hasPlan, w.faults = true, nil
		for range touches {
			w.random.Uint64()
		}
		if w.Run(SettledDifference) == nil && is(w) {
			return true
		}
	}
	return false
}

func (r *recording) comparable(e End) End {
	e = withoutExtremes(e)
	if f := r.scenario.MayDiffer; f != nil {
		f(e)
	}
	return e
}

// leaked returns an instance without a machine, or "". leaked ignores an instance that has no machine in the
// undisturbed run either.
func (w *World) leaked(r *recording) string {
	for _, in := range w.cloud.instances {
		if in.owner() == "" || w.oracle.machines[in.owner()] != nil || r.end.cloud.byID(in.ProviderID) != nil &&
			r.end.oracle.machines[in.owner()] == nil {
			continue
		}
		return in.ProviderID
	}
	return ""
}

// isRepaired reports whether the field has its value from before the corruption, or from the end of the undisturbed
// run.
func (w *World) isRepaired(r *recording) bool {
	now := w.valueOf(w.corrupted.Field)
	if w.corrupted.Field.Kind == "Lease" { // The holder writes the whole Lease again.
		return !sameValue(now, w.corrupted.after)
	}
	return sameValue(now, w.corrupted.before) || sameValue(now, r.end.valueOf(w.corrupted.Field))
}

func (w *World) valueOf(f Field) any {
	all, err := w.storedObjects()
	if err != nil {
		return nil
	}
	for _, o := range all {
		if o.Cluster == f.Cluster && o.Kind == f.Kind && o.Namespace == f.Namespace && o.Name == f.Name {
			value, _ := valueAt(o.content, f.Path)
			return value
		}
	}
	return nil
}
