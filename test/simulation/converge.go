package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/controllermanager"
)

// These constants limit a run. A run that exceeds one of these limits fails, because it did not converge.
const (
	maxSteps = 60_000
	// patience is the simulated time that a run may take after the last action and the last fault. patience is shorter
	// than the join timeout, which could hide a bug by replacing the machine. patience is longer than the waits after a
	// fault and the settle time.
	patience = 15 * time.Minute
	// within is the absolute limit of a run, in addition to the times for which its users wait. A fault or an action can
	// start patience again, but cannot move this limit.
	within = 75 * time.Minute
	// finalWriteTime is the time for the last status writes after the run has reached its end. After that, the
	// simulation checks that nothing changes for longWatch, or for shortWatch in the numerous runs of plans. shortWatch
	// is longer than any wait that starts with a fault.
	finalWriteTime, longWatch, shortWatch = time.Minute, time.Hour, 20 * time.Minute
)

// unsettledError is the error of a run that has not reached the expected state, although its processes only wait or
// have nothing left to do.
type unsettledError struct{ error }

// Run lets the processes run until the world has reached the expected end. Nothing may be written for a while after
// that. wrong describes what is still missing, or returns "" at the expected end.
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
		if w.clock.at.After(w.mustEnd) && !w.mustEnd.IsZero() {
			return unsettledError{fmt.Errorf("the run has not reached its end in time: %s", missing)}
		}
		if missing == "" && len(w.script) == 0 && !w.faultsLast() {
			return w.rest(wrong)
		}
		at, waits := w.next()
		disturbed := w.disturbed
		for _, at := range []time.Time{w.listsSettle(), w.preservedUntil(), w.capacityRetried()} {
			if at.After(disturbed) {
				disturbed = at
			}
		}
		late := waits && at.After(disturbed.Add(patience+w.wallClockLag()))
		after := patience / 2
		if late { // A late list delays the discovery that most instances are orphans.
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
			return unsettledError{fmt.Errorf("%s after the last disturbance, %s", patience, missing)}
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
	return fmt.Errorf("not settled after %d steps: %s", maxSteps, wrong(w))
}

func (w *World) watchTime() time.Duration {
	if w.hasPlan {
		return shortWatch
	}
	return longWatch
}

func (w *World) rest(wrong func(*World) string) error {
	w.faults, w.stepsWhenSettled, w.mustEnd = nil, w.steps, time.Time{}
	w.cloud.past.disableEndless()
	if err := w.runFor(w.settling()); err != nil {
		return err
	}
	if w.corrupted != nil && wrong(w) != "" {
		return w.Run(wrong) // A corruption at the end was repaired, or had an effect, a while later.
	}
	control, target, changes := w.control.Revision(), w.target.Revision(), w.cloud.changeCount
	if err := w.runFor(w.watchTime()); err != nil {
		return err
	}
	if missing := wrong(w); missing != "" {
		return unsettledError{fmt.Errorf("the run did not stay in the end state: %s", missing)}
	}
	toControl, toTarget := writesSince(w.control, control), writesSince(w.target, target)
	if toControl+toTarget > 0 || changes != w.cloud.changeCount {
		return fmt.Errorf("%d control and %d target cluster writes and %d calls of the cloud when settled: %s",
			toControl, toTarget, w.cloud.changeCount-changes, w.oracle.lastWrites(control, target))
	}
	return nil
}

func writesSince(server *apiserver.Server, revision int64) (n int) {
	for _, c := range server.Changes(revision) {
		if c.Actor != controllermanager.TokenCleaner {
			n++
		}
	}
	return n
}

// settling returns how long processes may still write statuses after the world has reached its end. This time is longer
// if a process waits before a retry, or if a clock was set back. After a clock was set back, waits in memory last
// longer. In a real process, Go's monotonic clock prevents this, but the simulation has no monotonic clock.
func (w *World) settling() time.Duration {
	settle := finalWriteTime
	if w.safety.optionalReconcilers.has(Orphans) {
		// If a check could not list an instance, the instance becomes an orphan only after two more checks.
		settle += 3 * orphanPeriod
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

// wallClockLag returns how much later timers fire if clocks were set back. Only timers that are computed from recorded
// times are affected.
func (w *World) wallClockLag() (d time.Duration) {
	for _, p := range w.processes {
		d += max(0, p.clock.behind)
	}
	return d
}

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
