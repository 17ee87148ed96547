package machine

import (
	"errors"
	"time"
)

// progress is the result of a step. It is next, or says what leads to another pass over the Machine: any of some
// triggers (see Wiring), a time, or the error that the step returns.
type progress uint16

const (
	// next lets the next step follow in the same pass.
	next progress = 0
	// onError is the retry of the queue. The step returns the error.
	onError progress = 1 << iota
	// atTime is the time that the step has asked for; see after.
	atTime

	// onMachine is a change of the Machine by others.
	onMachine
	// onOtherMachine is that another Machine with the same provider ID goes, or gets another instance.
	onOtherMachine
	// onClass is a change of the Machine's class.
	onClass
	// onSecret is a change of a Secret that the Machine is made from.
	onSecret
	// onNode is a change of the Machine's Node, or of one that may be.
	onNode
	// onDrain is news of the drain of the Machine's Node.
	onDrain
	// onSlot is that the Machine has got a slot for its creation.
	onSlot
	// onRequest is a request of another part of the process, such as of a list in which the instance is missing.
	onRequest

	// endOfTriggers is behind the last trigger.
	endOfTriggers
)

// onInputs is a change of anything that the Machine is made from.
const onInputs = onMachine | onClass | onSecret

var errNoWake = errors.New("a step waits, and nothing leads to another pass over the machine: this is a bug")

// after asks for another pass after d at the latest.
func (p *pass) after(d time.Duration) progress {
	p.requeueIn(d)
	return atTime
}

// unless returns next if a condition holds.
func (w progress) unless(holds bool) progress {
	if holds {
		return next
	}
	return w
}

// check returns an error if a pass without an error waits for a time and has asked for none, or for the retry of an
// error. Then the queue retries, and the Machine is not forgotten.
func (w progress) check(requeueAfter time.Duration) error {
	if w&atTime != 0 && requeueAfter == 0 || w == onError {
		return errNoWake
	}
	return nil
}
