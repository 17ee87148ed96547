package handover

import (
	"maps"
	"slices"
	"time"
)

func (w *World) randomUpTo(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// oneIn returns true with a probability of 1/n. After the last fault, the result is always false.
func (w *World) oneIn(n int) bool { return !w.faultsOver && w.random.IntN(n) == 0 }

func (w *World) injectFault() {
	running := make([]*process, 0, len(w.slots))
	for _, s := range w.slots {
		if s.process != nil && !s.process.inRequest {
			running = append(running, s.process)
		}
	}
	if len(running) == 0 {
		return
	}
	p := running[w.random.IntN(len(running))]
	if leaders := w.leaders(); len(leaders) > 0 && w.random.IntN(4) > 0 {
		p = leaders[w.random.IntN(len(leaders))]
	}
	switch w.random.IntN(13) {
	case 0, 1, 2, 3:
		w.end(p, "killed")
	case 4, 5:
		w.logf("%s is stopped", p.name)
		p.release()
		w.end(p, "stopped")
	case 6, 7:
		p.frozenUntil = w.now.Add(w.randomUpTo(30 * time.Second))
		w.logf("%s is frozen until %s", p.name, p.frozenUntil.Format("05.000"))
	case 8, 9:
		p.cutUntil = w.now.Add(w.randomUpTo(25 * time.Second))
		w.logf("%s does not reach the API server until %s", p.name, p.cutUntil.Format("05.000"))
	case 10:
		w.cutUntil = w.now.Add(w.randomUpTo(20 * time.Second))
		w.logf("the API server does not answer until %s", w.cutUntil.Format("05.000"))
	case 11:
		w.deploy(1 + w.random.IntN(maxShards))
	case 12:
		names := slices.Sorted(maps.Keys(w.api.leases))
		if len(names) == 0 {
			return
		}
		name := names[w.random.IntN(len(names))]
		w.logf("the Lease %s is deleted", name)
		delete(w.api.leases, name)
		if w.random.IntN(2) == 0 {
			w.end(p, "killed after the deletion of a Lease")
		}
	}
}

// transmit sends a request to the API server, or a response back. During the transmission, other processes act, and the
// request or response may be lost.
func (w *World) transmit(p *process) error {
	if p.dead {
		return errUnreachable
	}
	if w.cutUntil.After(w.now) || p.cutUntil.After(w.now) {
		w.pause(requestTimeout)
		return errUnreachable
	}
	switch {
	case w.oneIn(60):
		w.pause(w.randomUpTo(requestTimeout))
	case w.oneIn(200):
		w.pause(requestTimeout)
		return errNoAnswer
	case w.oneIn(400):
		w.logf("%s is frozen in a request", p.name)
		w.pause(w.randomUpTo(30 * time.Second))
	case w.oneIn(399): // The probability of a kill equals that of a freeze.
		w.end(p, "killed in a request")
	}
	if p.dead {
		return errUnreachable
	}
	return nil
}

func (w *World) pause(d time.Duration) {
	if w.nesting >= maxNesting || w.violation != nil {
		return
	}
	w.nesting++
	defer func() { w.nesting-- }()
	w.advance(w.now.Add(d), nil)
}
