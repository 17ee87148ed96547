package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// These constants limit a run. If a run exceeds a limit, it does not converge.
const (
	maxSteps = 60_000
	// patience is the simulated time that a run may take after the last action and the last fault. patience is shorter
	// than the join timeout of machines. Otherwise the join timeout could hide a bug, because it replaces the machine.
	// patience is longer than the waits after a fault and longer than the settle time.
	patience = 15 * time.Minute
	// patienceWithTags replaces patience after the tags of an instance were changed, because such a change is
	// repaired only after the join timeout.
	patienceWithTags = patience + v1beta1.DefaultCreationTimeout
	// finalWriteTime is the time that the processes have for writing the last statuses after the run has reached its end.
	// After that, the simulation watches the settled world for longWatch. There are many runs of plans, so they are only
	// watched for shortWatch. shortWatch is longer than any wait that starts with a fault.
	finalWriteTime, longWatch, shortWatch = time.Minute, time.Hour, 20 * time.Minute
)

// unsettledError says that a run did not reach its end, although its processes are only waiting or have nothing left to
// do.
type unsettledError struct{ error }

// Run runs the world until the world has reached its end. Then Run continues for a while, in which nothing may be
// written. The function wrong returns what is still missing, or "" if the end is reached.
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
		late := waits && at.After(disturbed.Add(w.patience()+w.wallClockLag()))
		after := patience / 2
		if late { // A late list shows late that most instances are orphans.
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

// patience returns the time that a run may take after its last disturbance.
func (w *World) patience() time.Duration {
	if w.corrupted != nil && w.corrupted.Field.Kind == "Instance" {
		return patienceWithTags
	}
	return patience
}

// watchTime returns the time for which a settled world is watched.
func (w *World) watchTime() time.Duration {
	if w.planned {
		return shortWatch
	}
	return longWatch
}

// rest watches a settled world.
func (w *World) rest(wrong func(*World) string) error {
	w.faults, w.stepsWhenSettled = nil, w.steps
	w.cloud.past.rest()
	if err := w.runFor(w.settling()); err != nil {
		return err
	}
	if w.corrupted != nil && wrong(w) != "" {
		return w.Run(wrong) // A corruption at the end was repaired, or had an effect, a while later.
	}
	control, target, changes := w.control.Revision(), w.target.Revision(), w.cloud.changes
	if err := w.runFor(w.watchTime()); err != nil {
		return err
	}
	if missing := wrong(w); missing != "" {
		return unsettledError{fmt.Errorf("the end was reached but did not last: %s", missing)}
	}
	toControl, toTarget := writesSince(w.control, control), writesSince(w.target, target)
	if toControl+toTarget > 0 || changes != w.cloud.changes {
		return fmt.Errorf("%d and %d writes and %d calls of the cloud when settled: %s", toControl, toTarget,
			w.cloud.changes-changes, w.oracle.lastWrites(control, target))
	}
	return nil
}

// writesSince returns the number of writes since a revision, but does not count the deletion of expired tokens, for
// example of a token that could not be deleted in an outage.
func writesSince(server *apiserver.Server, revision int64) (n int) {
	for _, c := range server.Changes(revision) {
		if c.Actor != controllermanager.TokenCleaner {
			n++
		}
	}
	return n
}

// settling returns the time that the processes have for writing the last statuses. This time is longer if a process
// waits before it retries a failed request. The time is also longer if a clock was set back, because waits that a
// process stores in memory then last longer. In a real process, Go's monotonic clock prevents that. The world has no
// monotonic clock.
func (w *World) settling() time.Duration {
	settle := finalWriteTime
	if w.safety.optionalReconcilers.has(Orphans) {
		settle += 3 * orphanPeriod // An instance that one pass could not list is an orphan only to the second pass after it.
	}
	for _, p := range w.processes {
		for _, d := range p.denials {
			settle = max(settle, d.until.Sub(w.clock.at)+wiring.LongestRetry+finalWriteTime/2)
		}
		for _, c := range p.controllers {
			for key := range c.queue.failures {
				if at, waits := c.queue.delayed[key]; waits {
					settle = max(settle, at.Sub(w.clock.at)+finalWriteTime/2)
				}
			}
		}
	}
	return settle + w.wallClockLag() + w.cloud.past.settling()
}

// wallClockLag returns how much later timers fire if clocks were set back. Only timers that are computed from
// recorded times are affected.
func (w *World) wallClockLag() (d time.Duration) {
	for _, p := range w.processes {
		d += max(0, p.clock.behind)
	}
	return d
}

// runFor runs the world for a time, and then until nothing more can happen at that time.
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
