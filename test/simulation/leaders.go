package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/process/fence"
)

// Two leaders. The fence lets nothing pass once the lease is not surely ours, so that what a former leader still does
// is what it had sent before, or what the doc of package fence concedes: a host that was suspended takes itself for
// the leader until its renew deadline is over, and goes on to read for as long as work that was cancelled is waited
// for. Here the former life of a process goes on as that allows, under another actor's name: a rule that is about
// what a leader knew (I3) judges the leader.

// Former is added to the name of a process for the actor that its former life is.
const Former = " (former)"

// depose makes a life of a process the former one: another one begins, as it does after a restart.
func (w *World) depose(p *Process) {
	p.former, p.suspended = true, true
	p.actAsFormer()
	p.deposedAt = w.clock.at
	w.deposed++
	w.logf("%s is deposed", p.name)
	if w.safety.links[toControl].down() {
		// Nobody is elected before it is back.
		w.processes = append(w.processes, w.awaited(p.name, p.clock))
		return
	}
	successor, err := w.start(p.name, p.clock.behind, w.lateness(p))
	if err != nil {
		w.oracle.broken(err)
		p.dead = true
		return
	}
	w.processes = append(w.processes, successor)
}

// awaited is a process that is yet to be elected.
func (w *World) awaited(name string, clock *wallClock) *Process {
	return &Process{world: w, name: name, dead: true, clock: clock, control: &cache{}, target: &cache{}}
}

func (p *Process) actAsFormer() {
	for _, c := range p.connections {
		c.Client = p.world.reach(c.cache.server, p.name+Former)
	}
}

// fence is what a process asks before it changes anything.
func (p *Process) fence() error {
	if p.elector != nil {
		return p.elector.fence.Check()
	}
	if p.former && !p.suspended && !p.until.IsZero() && !p.world.clock.at.Before(p.until) {
		return fmt.Errorf("%w: the lease of the former %s is over", fence.ErrFenced, p.name)
	}
	return nil
}

// mayCall is the rule of the fence: behind it nothing is sent to the cloud that changes something.
func (o *oracle) mayCall(p *Process, verb, name string) {
	if p.fence() != nil {
		o.breach("fence", "the former %s asks the cloud to %s instance of %s, and its lease is over", p.name, verb, name)
	}
}

// meanwhile lets others act for a time while a process stands in the middle of an effect.
func (w *World) meanwhile(p *Process, d time.Duration) {
	p.suspended = true
	defer func() { p.suspended = false }()
	until := w.clock.at.Add(d)
	for limit := w.steps + maxSteps/10; w.steps < limit; {
		any, err := w.step(true)
		if err != nil {
			w.oracle.broken(err)
			return
		}
		if any {
			continue
		}
		at, waits := w.next()
		if !waits || at.After(until) {
			w.pass(max(0, until.Sub(w.clock.at)))
			return
		}
		w.pass(max(at.Sub(w.clock.at), time.Millisecond))
	}
}

// retire ends former lives whose lease is certainly over, and forgets those that have ended.
func (w *World) retire() {
	for i := 0; i < len(w.processes); i++ {
		p := w.processes[i]
		if !p.former || p.suspended || !p.dead && (p.until.IsZero() || w.clock.at.Before(p.until.Add(fencedWait))) {
			continue
		}
		if !p.dead {
			w.logf("the former %s ends", p.name)
			p.die()
		}
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps // It ran until now.
		w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
		i--
	}
}
