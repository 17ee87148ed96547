package simulation

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Outcome is what came of a corruption.
type Outcome string

// Outcomes.
const (
	// NotAdmitted: an API server does not admit it.
	NotAdmitted Outcome = "refused by admission"
	// Repaired: the field is again what it would have been, and so is all else.
	Repaired Outcome = "repaired"
	// Harmless: the field stays changed, and all else is as it would have been.
	Harmless Outcome = "harmless"
	// Named: a condition or an event says what is wrong, and no instance is lost or leaked.
	Named Outcome = "named"
	// AskedFor: the field asks for what happened by its documented meaning.
	AskedFor Outcome = "asked for"
	// Violated: neither.
	Violated Outcome = "violation"
)

// Outcomes are all, in the order of a report.
func Outcomes() []Outcome {
	return []Outcome{NotAdmitted, Repaired, Harmless, Named, AskedFor, Violated}
}

// Bounds of a world that does not come to its end because of a corruption: what it may do in shortRest.
const (
	mostWrites = 12
	mostSteps  = 2500
)

// corruptedRun returns what comes of a corruption, measured by the undisturbed run. The error says what is wrong.
func (r *recording) corruptedRun(c Corruption, story func(string)) (Outcome, error) {
	w, err := r.stateAt(c.Effect)
	if err != nil {
		return Violated, err
	}
	w.story = story
	err = w.corrupt(c, false)
	var refused refusedError
	switch {
	case errors.As(err, &refused):
		return NotAdmitted, nil
	case err != nil:
		return "", err
	}
	there := map[string]bool{}
	for _, in := range w.cloud.instances {
		there[in.ProviderID] = true
	}
	return w.judgeCorruption(r, there)
}

// Corrupt runs one corruption of the run of a seed. story, if given, takes what happens from then on.
func (p *Prepared) Corrupt(seed uint64, c Corruption, story func(string)) (Outcome, error) {
	r := p.record(seed)
	if r.result.Err != nil {
		return "", r.result.Err
	}
	return r.corruptedRun(c, story)
}

// stateAt returns a copy of the run as it was before an effect, or in its end.
func (r *recording) stateAt(effect int) (*World, error) {
	if effect == AtEnd {
		if r.end == nil {
			return nil, fmt.Errorf("the undisturbed run has no end")
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

// judgeCorruption runs a corrupted world to its end and judges it.
func (w *World) judgeCorruption(r *recording, there map[string]bool) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = Violated, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.planned, w.faults = true, nil
	w.check()
	unsettled := unsettledError{}
	err = w.oracle.failure()
	if err == nil {
		err = w.Run(Settled)
	}
	asks, named := w.corrupted.asks, w.named(r.end)
	may := w.corrupted.may
	if err != nil {
		if asks != nil && asks.restless && named != "" && w.oracle.failure() == nil {
			return Named, nil
		}
		if !errors.As(err, &unsettled) {
			return Violated, err
		}
		most := mostWrites
		if asks != nil && asks.lose {
			most *= 10 // Machines may be replaced meanwhile, as is asked for.
		}
		if quiet := w.quiet(most); quiet != nil {
			return Violated, fmt.Errorf("%w; %w", err, quiet)
		}
	}
	if lost := w.lost(r, there); lost != "" && !may(func(a *meaning) bool { return a.lose }) && !r.losesAnyway(w) {
		return Violated, fmt.Errorf("instance %s is lost (%s)", lost, named)
	}
	if leaked := w.leaked(r); leaked != "" && !may(func(a *meaning) bool { return a.leak }) {
		return Violated, fmt.Errorf("instance %s leaks (%s)", leaked, named)
	}
	got := r.comparable(endOf(w))
	difference := got.difference(r.comparable(r.result.End))
	switch {
	case err == nil && difference == "" && w.isRepaired(r):
		return Repaired, nil
	case err == nil && difference == "":
		return Harmless, nil
	case may(func(a *meaning) bool { return a.differ || a.lose || a.leak }):
		return AskedFor, nil
	case named != "":
		return Named, nil
	case err != nil:
		return Violated, fmt.Errorf("nothing names it: %w", err)
	case r.endsAnyway(w, got):
		return Harmless, nil
	}
	return Violated, fmt.Errorf("nothing names why the end differs from that of the undisturbed run:\n    %s", difference)
}

// extreme is the text of an extreme with what is around it: a condition of such a type is one that somebody else
// wrote, and stays.
var extreme = regexp.MustCompile(` ?x{200,}[^ \]]*`)

func withoutExtremes(e End) End {
	out := End{}
	for line, n := range e {
		out[extreme.ReplaceAllString(line, "")] += n
	}
	return out
}

// quiet reports what a world does that waits for somebody to mend it, if that is too much.
func (w *World) quiet(most int) error {
	steps, calls, control, target := w.steps, w.cloud.changes, w.control.Revision(), w.target.Revision()
	if err := w.runFor(shortRest); err != nil {
		return err
	}
	n := w.cloud.changes - calls
	for _, c := range slices.Concat(w.control.Changes(control), w.target.Changes(target)) {
		if c.GVK.Kind != "Lease" { // A leader renews it all the time.
			n++
		}
	}
	if n > most {
		return fmt.Errorf("%d writes and calls in %s of waiting: %s", n, shortRest, w.oracle.last(control, target))
	}
	if n := w.steps - steps; n > mostSteps {
		return fmt.Errorf("%d steps in %s of waiting", n, shortRest)
	}
	return nil
}

// lost says which instance was lost although its machine is wanted. Whose instance goes is a matter of who acts first
// while machines go; then it is counted whether one more was made.
func (w *World) lost(r *recording, there map[string]bool) string {
	if w.corrupted.Effect != AtEnd {
		// A machine that was deleted early may have had its instance in another order of things.
		most := max(r.result.Made, r.end.everMade())
		if made := w.cloud.madeInAll(); made > most && r.scenario.MayDiffer == nil && r.scenario.Group == Lifecycle {
			return fmt.Sprintf("one of %d, where %d are made", made, most)
		}
		return ""
	}
	for _, in := range r.end.cloud.instances {
		if now := w.cloud.byID(in.ProviderID); there[in.ProviderID] && (now == nil || !now.dying.IsZero()) {
			return in.ProviderID
		}
	}
	return ""
}

// losesAnyway reports whether as many instances are made where nothing is corrupted and only the order of things is
// another one, as it is after any write.
func (r *recording) losesAnyway(of *World) bool {
	return r.inAnotherOrder(of, func(w *World) bool { return w.cloud.madeInAll() >= of.cloud.madeInAll() })
}

// endsAnyway reports whether the end is that of a world where nothing is corrupted and only the order of things is
// another one.
func (r *recording) endsAnyway(of *World, end End) bool {
	return r.inAnotherOrder(of, func(w *World) bool { return r.comparable(endOf(w)).difference(end) == "" })
}

// inAnotherOrder reports whether something is so in the end of one of some worlds in which nothing is corrupted, and
// that are as another one was and go on in other orders.
func (r *recording) inAnotherOrder(of *World, is func(*World) bool) bool {
	if of.corrupted.Effect == AtEnd {
		return false
	}
	for touches := range 40 {
		w, err := r.stateAt(of.corrupted.Effect)
		if err != nil {
			return false
		}
		w.planned, w.faults = true, nil
		for range touches {
			w.random.Uint64()
		}
		if w.Run(Settled) == nil && is(w) {
			return true
		}
	}
	return false
}

// comparable returns an end without what may differ.
func (r *recording) comparable(e End) End {
	e = withoutExtremes(e)
	if f := r.scenario.MayDiffer; f != nil {
		f(e)
	}
	return e
}

// leaked returns an instance that no machine has, and that is not there in the undisturbed end either.
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

// named returns what says that something is wrong: warnings since, and conditions that the undisturbed end does not
// have.
func (w *World) named(end *World) string {
	usual := end.complaints()
	var out []string
	for _, c := range slices.Sorted(maps.Keys(w.complaints())) {
		if !usual[c] {
			out = append(out, c)
		}
	}
	for _, e := range w.corrupted.events {
		out = append(out, "event "+e)
	}
	return strings.Join(out, ", ")
}

// complaints are the conditions by which objects of ours say that something is not as it has to be.
func (w *World) complaints() map[string]bool {
	out := map[string]bool{}
	for _, gvk := range corruptible[InControl] {
		for _, o := range w.control.Snapshot(gvk) {
			with, ok := o.(interface{ GetConditions() []metav1.Condition })
			if !ok {
				continue
			}
			for _, c := range with.GetConditions() {
				if c.Status != goodStatus(c.Type) && c.Status != "" {
					out[fmt.Sprintf("%s %s: %s=%s (%s)", gvk.Kind, o.GetName(), c.Type, c.Status, c.Reason)] = true
				}
			}
		}
	}
	return out
}

// goodStatus is the status of a condition that says that all is well.
func goodStatus(condition string) metav1.ConditionStatus {
	switch condition {
	case v1beta1.ConditionReplicaFailure, v1beta1.ConditionPaused, v1beta1.ConditionFrozen, v1beta1.ConditionStalled,
		v1beta1.ConditionDeleting, v1beta1.ConditionOrphanRemovalBlocked, v1beta1.ConditionStuck:
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

// isRepaired reports whether the field has the value that it had, or the one of the undisturbed end.
func (w *World) isRepaired(r *recording) bool {
	now := w.valueOf(w.corrupted.Field)
	if w.corrupted.Field.Kind == "Lease" { // Its holder writes all of it anew.
		return !sameValue(now, w.corrupted.after)
	}
	return sameValue(now, w.corrupted.before) || sameValue(now, r.end.valueOf(w.corrupted.Field))
}

func (w *World) valueOf(f Field) any {
	all, err := w.stored()
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
