package machine

import (
	"errors"
	"time"
)

// progress is the result of a step. It is next, or the triggers that lead to another pass over the Machine: watch
// events (see Wiring), a time, or the error that the step returns.
type progress uint16

const (
	// next means that the next step runs in the same pass.
	next progress = 0
	// onError means that the queue retries. The step returns the error.
	onError progress = 1 << iota
	// atTime means that the step scheduled a pass; see after.
	atTime

	// onMachine means that another client changes the Machine.
	onMachine
	// onOtherMachine means that another Machine with the same provider ID is deleted or gets another instance.
	onOtherMachine
	// onSet means that a rollout of the Machine's MachineSet begins or ends.
	onSet
	// onClass means that the Machine's class changes.
	onClass
	// onSecret means that a Secret of the Machine or its class changes.
	onSecret
	// onNode means that the Machine's Node changes, or a Node that may be the Machine's.
	onNode
	// onDrain means that there is news of the drain of the Machine's Node.
	onDrain
	// onSlot means that the Machine gets a slot for its creation.
	onSlot
	// onRequest means that another part of the process requests a pass, for example because the instance is missing
	// from a list.
	onRequest

	// endOfTriggers follows the last trigger.
	endOfTriggers
)

// onInputs means that an input of the launch changes.
const onInputs = onMachine | onClass | onSecret

var errNoWake = errors.New("a step waits, but nothing triggers another pass over the machine: this is a bug")

// after schedules another pass after d at the latest.
func (p *pass) after(d time.Duration) progress {
	p.requeueIn(d)
	return atTime
}

// unless returns next if the condition holds.
func (w progress) unless(holds bool) progress {
	if holds {
		return next
	}
	return w
}

// check returns an error if a pass without an error waits for a time but has scheduled none, or waits for the retry of
// an error. Then the queue retries, so that the Machine is not forgotten.
func (w progress) check(requeueAfter time.Duration) error {
	if w&atTime != 0 && requeueAfter == 0 || w == onError {
		return errNoWake
	}
	return nil
}
