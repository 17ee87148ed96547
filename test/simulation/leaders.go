package simulation

import (
	"fmt"
	"time"

	"machinist.dev/machinist/internal/platform/process/fence"
)

// Two leaders at the same time. The fence rejects each action of a process that may no longer hold the Lease. A former
// leader can still act in two cases: its request was sent before the fence closed, or its host was suspended. If the
// host was suspended, the former leader considers itself the leader until the renew deadline (see package fence). The
// former leader also continues to read while its process waits for canceled work.
//
// In the simulation, a former life of a process continues within these limits. The actions of a former life have a
// different actor name. Rules about the knowledge of the leader (I3) apply only to the current leader.

// FormerSuffix is added to the actor name of a process when the process has lost its leadership.
const FormerSuffix = " (former)"

// depose ends the leadership of a process, which continues to run as a former leader. depose starts a successor in the
// same way as a restart.
func (w *World) depose(p *Process) {
	p.isFormer, p.suspended = true, true
	p.actAsFormer()
	p.deposedAt = w.clock.at
	w.deposedCount++
	w.logf("%s is deposed", p.name)
	if w.safety.links[toControl].down() {
		// No process is elected until the control cluster is reachable again.
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

func (w *World) unelected(name string, clock *wallClock) *Process {
	return &Process{world: w, name: name, dead: true, clock: clock, control: &cache{}, target: &cache{}}
}

func (p *Process) actAsFormer() {
	for _, c := range p.connections {
		c.Client = p.world.reach(c.cache.server, p.name+FormerSuffix)
	}
}

// fence returns an error if the process must no longer change anything. Before each change, the process must call
// fence.
func (p *Process) fence() error {
	if p.elector != nil {
		return p.elector.fence.Check()
	}
	if p.isFormer && !p.suspended && !p.until.IsZero() && !p.world.clock.at.Before(p.until) {
		return fmt.Errorf("%w: the lease of the former %s has expired", fence.ErrFenced, p.name)
	}
	return nil
}

// mayCall checks that a process does not change the cloud after its fence is closed.
func (o *oracle) mayCall(p *Process, verb, name string) {
	if p.isFormer || p.elector != nil {
		o.judged["fence"]++
	}
	if p.elector != nil && !p.elector.mayAct() || p.elector == nil && p.fence() != nil {
		o.breach("fence", "the former %s asks the cloud to %s instance of %s after its lease expired", p.name, verb, name)
	}
}

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

// removeFormer stops former leaders whose Lease has certainly expired, and removes the stopped ones from the list of
// processes.
func (w *World) removeFormer() {
	for i := 0; i < len(w.processes); i++ {
		p := w.processes[i]
		if !p.isFormer || p.suspended || !p.dead && (p.until.IsZero() || w.clock.at.Before(p.until.Add(fencedWait))) {
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
