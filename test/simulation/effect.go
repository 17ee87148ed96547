package simulation

import (
	"errors"
	"fmt"
)

// Effect is an action of a process that is visible from outside: a write to an API server, a call of the cloud, or an
// uncached read.
type Effect struct {
	// N is the number of this effect in the run.
	N int
	// Process and Controller name the originators of the effect. Controller has the format process/controller.
	Process, Controller string
	// Verb, Kind and Name describe the effect, for example "patch status", "Machine" and "ns/m-1".
	Verb, Kind, Name string
	// Reads is true if the effect only reads and changes nothing.
	Reads bool
	// HasPrecondition is true if a deletion has a resource version as a precondition.
	HasPrecondition bool
	// Cloud means that the effect is a call of the cloud.
	Cloud bool
	// Breakable means that a machine can break at this effect. Only a recording sets this field.
	Breakable bool
}

func (e Effect) String() string {
	return fmt.Sprintf("#%d %s: %s %s %s", e.N, e.Controller, e.Verb, e.Kind, e.Name)
}

// Faults chooses the faults that happen in a run.
type Faults interface {
	// Next returns the fault to inject at the next effect, or "" if there is none.
	Next(w *World, e Effect) Fault
}

// errDead is the error of every request of a crashed process. These requests have no effect.
var errDead = errors.New("the process is dead")

// errNoAnswer says that a request or its response was lost, or that the connection was refused.
var errNoAnswer = errors.New("no answer: connection reset")

func (p *Process) do(e Effect, apply func(late bool) error) error {
	w := p.world
	if p.dead {
		return errDead
	}
	if err := p.fence(); err != nil && !e.Reads && !e.Cloud {
		return err // Clients check the fence in package process, and cloud calls in package cloud.
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
	if w.faults != nil && !p.isFormer {
		fault = w.faults.Next(w, e)
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
	err := apply(fault == FaultLate)
	switch {
	case w.story == nil:
	case err != nil:
		w.logf("%s: %v", e, err)
	default:
		w.logf("%s", e)
	}
	w.check()
	switch fault {
	case FaultCrashAfter:
		p.die()
		return errDead
	case FaultLost, FaultLate:
		return errNoAnswer
	}
	return err
}

func (p *Process) die() {
	p.dead = true
	p.world.crashes++
}
