package handover

import (
	"maps"
	"slices"
	"time"
)

// upTo returns a random time.
func (w *World) upTo(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// faulty is true once in so many times, until all is calm.
func (w *World) faulty(in int) bool { return !w.calm && w.random.IntN(in) == 0 }

// trouble is what befalls processes, or what people do to them.
func (w *World) trouble() {
	running := make([]*process, 0, len(w.slots))
	for _, s := range w.slots {
		if s.process != nil && !s.process.inside {
			running = append(running, s.process)
		}
	}
	if len(running) == 0 {
		return
	}
	p := running[w.random.IntN(len(running))]
	if open := w.open(); len(open) > 0 && w.random.IntN(4) > 0 {
		p = open[w.random.IntN(len(open))]
	}
	switch w.random.IntN(13) {
	case 0, 1, 2, 3:
		w.end(p, "killed")
	case 4, 5:
		w.logf("%s is stopped", p.name)
		p.release()
		w.end(p, "stopped")
	case 6, 7:
		p.frozenUntil = w.now.Add(w.upTo(30 * time.Second))
		w.logf("%s is frozen until %s", p.name, p.frozenUntil.Format("05.000"))
	case 8, 9:
		p.cutUntil = w.now.Add(w.upTo(25 * time.Second))
		w.logf("%s does not reach the API server until %s", p.name, p.cutUntil.Format("05.000"))
	case 10:
		w.cutUntil = w.now.Add(w.upTo(20 * time.Second))
		w.logf("the API server does not answer until %s", w.cutUntil.Format("05.000"))
	case 11:
		w.deploy(1 + w.random.IntN(mostShards))
	case 12:
		names := slices.Sorted(maps.Keys(w.api.leases))
		if len(names) == 0 {
			return
		}
		name := names[w.random.IntN(len(names))]
		w.logf("the lease %s is deleted", name)
		delete(w.api.leases, name)
		if w.random.IntN(2) == 0 {
			w.end(p, "killed after that")
		}
	}
}

// way is the way of a request to the API server, or of its answer: it takes time, in which others act, and may end
// nowhere.
func (w *World) way(p *process) error {
	if p.dead {
		return errUnreachable
	}
	if w.cutUntil.After(w.now) || p.cutUntil.After(w.now) {
		w.pause(requestTimeout)
		return errUnreachable
	}
	switch {
	case w.faulty(60):
		w.pause(w.upTo(requestTimeout))
	case w.faulty(200):
		w.pause(requestTimeout)
		return errNoAnswer
	case w.faulty(400):
		w.logf("%s is frozen in a request", p.name)
		w.pause(w.upTo(30 * time.Second))
	case w.faulty(399): // as often as frozen
		w.end(p, "killed in a request")
	}
	if p.dead {
		return errUnreachable
	}
	return nil
}

// pause lets others act while a process waits.
func (w *World) pause(d time.Duration) {
	if w.nested >= mostNested || w.broken != nil {
		return
	}
	w.nested++
	defer func() { w.nested-- }()
	w.until(w.now.Add(d), nil)
}
