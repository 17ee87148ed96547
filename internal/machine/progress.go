package machine

import (
	"errors"
	"time"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// progress is the result of a step. The value next continues with the next step. Any other value names the trigger of
// the next pass: a watch event (see Wiring), a time, or the retry after an error.
type progress uint16

const (
	// next means that the next step runs in the same pass.
	next progress = 0
	// onError means that the step returns an error and the queue retries.
	onError progress = 1 << iota
	// atTime means that the step has scheduled a pass with after or requeueIn.
	atTime
	// silently means that the step waits, but does not write this to the status yet, because most waits are short.
	silently

	// onMachine means that the step waits for another client to change the Machine.
	onMachine
	// onOtherMachine means that the step waits until another Machine with the same provider ID is deleted or gets
	// another instance.
	onOtherMachine
	// onSet means that the step waits for the beginning or the end of a rollout of the MachineSet.
	onSet
	// onClass means that the step waits for a change of the Machine's class.
	onClass
	// onSecret means that the step waits for a change of a Secret of the Machine or of its class.
	onSecret
	// onNode means that the step waits for a change of the Machine's Node, or of a Node that may belong to the Machine.
	onNode
	// onDrain means that the step waits for progress of the drain.
	onDrain
	// onSlot means that the step waits for a slot for the creation.
	onSlot
	// onRequest means that another part of the process triggers the next pass, for example because the instance is missing
	// from a list.
	onRequest

	endOfTriggers
)

// onInputs means that the step waits for a change of an input of the launch.
const onInputs = onMachine | onClass | onSecret

var errNoWake = errors.New("a step waits, but nothing triggers another pass over the machine: this is a bug")

func (p *pass) after(d time.Duration) progress {
	p.requeueIn(d)
	return atTime
}

// onMissing waits for an input that is missing. No event tells the process when it gets the permission to read an
// input.
func (p *pass) onMissing(missing *resolve.Error) progress {
	if missing.Forbidden {
		return onInputs | p.after(resolve.ForbiddenRetry)
	}
	return onInputs
}

func (w progress) unless(holds bool) progress {
	if holds {
		return next
	}
	return w
}

// check returns an error if nothing would trigger another pass. Such an error happens if a step returns atTime
// without a scheduled pass, or onError without an error. The error makes the queue retry the Machine, so that the
// Machine is not forgotten.
func (w progress) check(requeueAfter time.Duration) error {
	if w&atTime != 0 && requeueAfter == 0 || w == onError {
		return errNoWake
	}
	return nil
}
