package simulation

import (
	"errors"
	"fmt"
)

// Effect is something that a process does to the world: a write to an API server or a call of the cloud, or a read that
// bypasses its caches.
type Effect struct {
	// N counts the effects of a run.
	N int
	// Process and Controller (process/controller) are whose it is.
	Process, Controller string
	// Verb, Kind and Name say what it is, as in "patch status", "Machine", "ns/m-1".
	Verb, Kind, Name string
	// Reads is true for what changes nothing.
	Reads bool
	// Versioned is true for a deletion that says of which version.
	Versioned bool
	// Cloud is true for a call of the cloud.
	Cloud bool
}

func (e Effect) String() string {
	return fmt.Sprintf("#%d %s: %s %s %s", e.N, e.Controller, e.Verb, e.Kind, e.Name)
}

// Faults decides what goes wrong.
type Faults interface {
	// Of returns the fault of the effect that is about to happen.
	Of(w *World, e Effect) Fault
}

// errDead is what a process gets that has crashed: nothing that it still does reaches anything.
var errDead = errors.New("the process is dead")

// errNoAnswer is a lost or refused request.
var errNoAnswer = errors.New("no answer: connection reset")

// do lets an effect happen, or what the plan of the run makes of it.
func (p *Process) do(e Effect, apply func(late bool) error) error {
	w := p.world
	if p.dead {
		return errDead
	}
	if err := p.fence(); err != nil && !e.Reads && !e.Cloud {
		return err // The clients of package operator ask the fence; for the cloud package cloud does.
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
		p.strike(fault, e)
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

// die ends the process where it stands.
func (p *Process) die() {
	p.dead = true
	p.world.crashes++
}
