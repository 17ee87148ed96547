package simulation

import (
	"errors"
	"fmt"
)

// Effect is an action of a process that is visible outside of the process: a write to an API server, a call of the
// cloud, or a read from an API server without a cache.
type Effect struct {
	// N is the number of this effect in the run, in the order of all effects.
	N int
	// Process and Controller name the process and the controller that cause the effect. Controller has the format
	// process/controller.
	Process, Controller string
	// Verb, Kind and Name describe the effect, for example "patch status", "Machine" and "ns/m-1".
	Verb, Kind, Name string
	// Reads is true if the effect changes nothing.
	Reads bool
	// Versioned is true for a deletion that has a resource version as a precondition.
	Versioned bool
	// Cloud is true if the effect is a call of the cloud.
	Cloud bool
}

func (e Effect) String() string {
	return fmt.Sprintf("#%d %s: %s %s %s", e.N, e.Controller, e.Verb, e.Kind, e.Name)
}

// Faults decides which faults happen.
type Faults interface {
	// Of returns the fault of the effect that is about to happen, or no fault.
	Of(w *World, e Effect) Fault
}

// errDead is the error that a crashed process gets for each request. After a crash, no request of the process has an
// effect.
var errDead = errors.New("the process is dead")

// errNoAnswer is the error if a request or its answer was lost, or if the connection was refused.
var errNoAnswer = errors.New("no answer: connection reset")

// do carries out an effect. If the run has a fault for this effect, the fault is applied.
func (p *Process) do(e Effect, apply func(late bool) error) error {
	w := p.world
	if p.dead {
		return errDead
	}
	if err := p.fence(); err != nil && !e.Reads && !e.Cloud {
		return err // The clients of package process check the fence. For calls of the cloud, package cloud does.
	}
	e.Process, e.Controller = p.name, w.top().name()
	if f := w.top(); f != nil {
		f.sent = w.control.Revision()
	}
	w.interleave()
	if p.dead {
		return errDead
	}
	e.N = w.effects
	w.effects++
	fault := NoFault
	if w.faults != nil && !p.former {
		fault = w.faults.Of(w, e)
	}
	if fault != NoFault {
		w.disturbed, w.lastFault, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
		w.logf("%s: %s", e, fault)
		p.inject(fault, e)
		if p.dead {
			return errDead
		}
	}
	if err := p.errorOf(fault, e); err != nil {
		w.logf("%s: %v", e, err)
		return err
	}
	err := apply(fault == Late)
	switch {
	case w.story == nil:
	case err != nil:
		w.logf("%s: %v", e, err)
	default:
		w.logf("%s", e)
	}
	w.check()
	switch fault {
	case CrashAfter:
		p.die()
		return errDead
	case Lost, Late:
		return errNoAnswer
	}
	return err
}

// die ends the process at once.
func (p *Process) die() {
	p.dead = true
	p.world.crashes++
}
