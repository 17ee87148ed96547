package machine

import (
	"errors"
	"time"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// progress is the result of a step. It is either next, or it names what triggers the next pass over the Machine: watch
// events (see Wiring), a time, or the retry after an error.
type progress uint16

const (
	// next means that the next step runs in the same pass.
	next progress = 0
	// onError means that the queue retries. The step returns the error.
	onError progress = 1 << iota
	// atTime means that the step has scheduled a pass with after or requeueIn.
	atTime

	// onMachine means that a change of the Machine by another client triggers the next pass.
	onMachine
	// onOtherMachine means that another Machine with the same provider ID triggers the next pass when it is deleted or
	// gets another instance.
	onOtherMachine
	// onSet means that the beginning or the end of a rollout of the Machine's MachineSet triggers the next pass.
	onSet
	// onClass means that a change of the Machine's class triggers the next pass.
	onClass
	// onSecret means that a change of a Secret of the Machine or of its class triggers the next pass.
	onSecret
	// onNode means that a change of the Machine's Node, or of a Node that may belong to the Machine, triggers the next
	// pass.
	onNode
	// onDrain means that news about the drain of the Machine's Node triggers the next pass.
	onDrain
	// onSlot means that the next pass is triggered when the Machine gets a slot for its creation.
	onSlot
	// onRequest means that another part of the process triggers the next pass, for example because the instance is missing
	// from a list.
	onRequest

	// endOfTriggers follows the last trigger.
	endOfTriggers
)

// onInputs means that a change of an input of the launch triggers the next pass.
const onInputs = onMachine | onClass | onSecret

var errNoWake = errors.New("a step waits, but nothing triggers another pass over the machine: this is a bug")

// after schedules a pass that runs d from now at the latest, and returns atTime.
func (p *pass) after(d time.Duration) progress {
	p.requeueIn(d)
	return atTime
}

// onMissing waits for an input that is missing. No event tells the process when it is permitted to read an input.
func (p *pass) onMissing(missing *resolve.Error) progress {
	if missing.Forbidden {
		return onInputs | p.after(resolve.ForbiddenRetry)
	}
	return onInputs
}

// unless returns next if holds is true. Otherwise, it returns the progress unchanged.
func (w progress) unless(holds bool) progress {
	if holds {
		return next
	}
	return w
}

// check returns an error if nothing would trigger another pass. This is so if the progress is a time but no pass is
// scheduled, or if the progress is the retry of an error but there is no error. The error makes the queue retry the
// Machine, so that the Machine is not forgotten.
func (w progress) check(requeueAfter time.Duration) error {
	if w&atTime != 0 && requeueAfter == 0 || w == onError {
		return errNoWake
	}
	return nil
}
