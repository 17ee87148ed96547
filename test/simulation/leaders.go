package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/process/fence"
)

// Two leaders at the same time. The fence rejects each action of a process that may no longer hold the Lease. A former
// leader can still act in two cases. In the first case, it sent the request before its fence closed. In the second
// case, its host was suspended, and until the renew deadline it still considers itself the leader (see package fence).
// A former leader also continues to read while its process waits for canceled work.
//
// In the simulation, a former life of a process continues within these limits. Its actions have another actor name. So
// rules that depend on the knowledge of the leader (I3) apply only to the current leader.

// Former is appended to the name of a process. The result is the actor name of a former life of this process.
const Former = " (former)"

// depose makes the current life of a process a former life, and starts a new life like a restart.
func (w *World) depose(p *Process) {
	p.former, p.suspended = true, true
	p.actAsFormer()
	p.deposedAt = w.clock.at
	w.deposed++
	w.logf("%s is deposed", p.name)
	if w.safety.links[toControl].down() {
		// Until the control cluster is reachable again, no process is elected.
		w.processes = append(w.processes, w.unelected(p.name, p.clock))
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

// unelected returns a process that has not been elected yet.
func (w *World) unelected(name string, clock *wallClock) *Process {
	return &Process{world: w, name: name, dead: true, clock: clock, control: &cache{}, target: &cache{}}
}

func (p *Process) actAsFormer() {
	for _, c := range p.connections {
		c.Client = p.world.reach(c.cache.server, p.name+Former)
	}
}

// fence returns an error if the process is no longer allowed to change anything. The process calls it before each
// change.
func (p *Process) fence() error {
	if p.elector != nil {
		return p.elector.fence.Check()
	}
	if p.former && !p.suspended && !p.until.IsZero() && !p.world.clock.at.Before(p.until) {
		return fmt.Errorf("%w: the lease of the former %s has expired", fence.ErrFenced, p.name)
	}
	return nil
}

// mayCall checks that a process makes no call that changes the cloud after its fence is closed.
func (o *oracle) mayCall(p *Process, verb, name string) {
	if p.fence() != nil {
		o.breach("fence", "the former %s asks the cloud to %s instance of %s after its lease expired", p.name, verb, name)
	}
}

// letOthersAct lets other actors act for a time. During this time, the process waits in the middle of an effect.
func (w *World) letOthersAct(p *Process, d time.Duration) {
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

// removeFormer ends former lives whose lease has certainly expired, and removes those that have already ended.
func (w *World) removeFormer() {
	for i := 0; i < len(w.processes); i++ {
		p := w.processes[i]
		if !p.former || p.suspended || !p.dead && (p.until.IsZero() || w.clock.at.Before(p.until.Add(fencedWait))) {
			continue
		}
		if !p.dead {
			w.logf("the former %s ends", p.name)
			p.die()
		}
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps // The former life could act until now.
		w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
		i--
	}
}
