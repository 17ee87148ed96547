package world

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
	// Cloud is true for a call of the cloud.
	Cloud bool
}

func (e Effect) String() string {
	return fmt.Sprintf("#%d %s: %s %s %s", e.N, e.Controller, e.Verb, e.Kind, e.Name)
}

// Fault is what goes wrong with an effect.
type Fault string

// The faults.
const (
	NoFault Fault = ""
	// CrashBefore ends the process before the effect, CrashAfter when it has happened.
	CrashBefore Fault = "crash before"
	CrashAfter  Fault = "crash after"
	// Refused answers with an error, and nothing happened.
	Refused Fault = "error, not applied"
	// Lost answers with an error although it has happened.
	Lost Fault = "error, but applied"
	// Late answers with an error, and it happens later. It is for calls of the cloud; elsewhere it is like Lost.
	Late Fault = "error, applied late"
)

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
	e.Process, e.Controller = p.name, w.top().name()
	w.interleave()
	if p.dead {
		return errDead
	}
	e.N = w.effects
	w.effects++
	fault := NoFault
	if w.faults != nil {
		fault = w.faults.Of(w, e)
	}
	if fault != NoFault {
		w.disturbed = w.clock.at
		w.tell("%s: %s", e, fault)
	}
	switch fault {
	case CrashBefore:
		p.die()
		return errDead
	case Refused:
		return errNoAnswer
	}
	err := apply(fault == Late)
	switch {
	case w.story == nil:
	case err != nil:
		w.tell("%s: %v", e, err)
	default:
		w.tell("%s", e)
	}
	w.judge()
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
