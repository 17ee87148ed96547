package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// Bounds of a run. One that needs more does not converge.
const (
	maxSteps = 60_000
	// patience is how much of the world's time a run may take after the last action and the last fault: less than a
	// machine may take to become a Node, so that it is not a timeout that sets things right, and more than the few waits
	// after a fault and the time in which a creation shows.
	patience = 15 * time.Minute
	// patienceWithTags is the same where somebody changed the tags of an instance: what that makes wrong, the time to
	// join sets right.
	patienceWithTags = patience + v1beta1.DefaultCreationTimeout
	// settleTime is how long the last numbers may take to be written down after the end was reached, and restTime how
	// long a world when settled is watched after that; plans, of which there are many, are watched for less, which is
	// more than any wait that begins with a fault.
	settleTime, longRest, shortRest = time.Minute, time.Hour, 20 * time.Minute
)

// unsettledError is why a run did not come to its end, although it is quiet or waits.
type unsettledError struct{ error }

// Run lets things happen until everything is done and the end is reached, and then for a while more in which nothing
// may be written. wrong says what is missing to the end, "" if nothing is.
func (w *World) Run(wrong func(*World) string) error {
	for w.steps < maxSteps {
		any, err := w.step(false)
		if err != nil {
			return err
		}
		if any {
			continue
		}
		missing := wrong(w)
		if missing == "" && len(w.script) == 0 && !w.faultsLast() {
			return w.rest(wrong)
		}
		at, waits := w.next()
		disturbed := w.disturbed
		for _, at := range []time.Time{w.listsSettle(), w.preservedUntil()} {
			if at.After(disturbed) {
				disturbed = at
			}
		}
		late := waits && at.After(disturbed.Add(w.patience()+w.behindWall()))
		after := patience / 2
		if late { // A list that is late shows late that most instances are orphaned.
			after = 0
		}
		if acted, err := w.answerBlock(after); acted || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		switch {
		case !waits:
			return unsettledError{fmt.Errorf("everything is settled, but %s", missing)}
		case late:
			return unsettledError{fmt.Errorf("%s after the last disturbance, %s", w.patience(), missing)}
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
	return fmt.Errorf("not settled after %d steps: %s", maxSteps, wrong(w))
}

// patience is how long a run may take after its last disturbance.
func (w *World) patience() time.Duration {
	if w.corrupted != nil && w.corrupted.Field.Kind == "Instance" {
		return patienceWithTags
	}
	return patience
}

// restTime is how long a world when settled is watched.
func (w *World) restTime() time.Duration {
	if w.planned {
		return shortRest
	}
	return longRest
}

// rest watches a world in which everything is done.
func (w *World) rest(wrong func(*World) string) error {
	w.faults, w.stepsWhenSettled = nil, w.steps
	w.cloud.past.rest()
	if err := w.runFor(w.settling()); err != nil {
		return err
	}
	if w.corrupted != nil && wrong(w) != "" {
		return w.Run(wrong) // What somebody changed in the end was mended, or acted upon, a while later.
	}
	control, target, changes := w.control.Revision(), w.target.Revision(), w.cloud.changes
	if err := w.runFor(w.restTime()); err != nil {
		return err
	}
	if missing := wrong(w); missing != "" {
		return unsettledError{fmt.Errorf("the end was reached and did not last: %s", missing)}
	}
	toControl, toTarget := writesSince(w.control, control), writesSince(w.target, target)
	if toControl+toTarget > 0 || changes != w.cloud.changes {
		return fmt.Errorf("%d and %d writes and %d calls of the cloud when settled: %s", toControl, toTarget,
			w.cloud.changes-changes, w.oracle.last(control, target))
	}
	return nil
}

// writesSince counts the writes since a revision, but for the end of tokens that have expired, such as one that could
// not be removed in an outage.
func writesSince(server *apiserver.Server, revision int64) (n int) {
	for _, c := range server.Changes(revision) {
		if c.Actor != controllermanager.TokenCleaner {
			n++
		}
	}
	return n
}

// settling is how long the last numbers may take to be written down: longer where somebody waits to try again what
// failed, or waits for a time in its memory on a clock that was set back (which Go's monotonic clock, that there is
// none of here, is not).
func (w *World) settling() time.Duration {
	settle := settleTime
	if w.safety.optionalReconcilers.has(Orphans) {
		settle += 3 * orphanPeriod // What one pass could not list is an orphan only to the second after it.
	}
	for _, p := range w.processes {
		for _, d := range p.denials {
			settle = max(settle, d.until.Sub(w.clock.at)+wiring.LongestRetry+settleTime/2)
		}
		for _, c := range p.controllers {
			for key := range c.queue.failures {
				if at, waits := c.queue.delayed[key]; waits {
					settle = max(settle, at.Sub(w.clock.at)+settleTime/2)
				}
			}
		}
	}
	return settle + w.behindWall() + w.cloud.past.settling()
}

// behindWall is how much later what waits for a time that others wrote down happens, by clocks that were set back.
func (w *World) behindWall() (d time.Duration) {
	for _, p := range w.processes {
		d += max(0, p.clock.behind)
	}
	return d
}

// runFor lets things happen for a time, and whatever follows from them at once.
func (w *World) runFor(d time.Duration) error {
	until := w.clock.at.Add(d)
	for w.steps < maxSteps {
		any, err := w.step(false)
		if err != nil {
			return err
		}
		if any {
			continue
		}
		at, waits := w.next()
		if !waits || at.After(until) {
			break
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
	return nil
}
