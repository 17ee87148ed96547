package fakecloud

import (
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// Step defines the behaviour of one call of an operation.
type Step struct {
	// Err is the error that the call returns.
	Err error
	// Late delays the effect of Create or Adopt. It does not change the result of the call.
	Late time.Duration
	// During runs during the call.
	During func()
	// Spent marks the token of a Create as used, as if its instance had been created and removed already.
	Spent bool
	// Unseen lets Delete report Gone without a deletion, as after a stale read.
	Unseen bool
	// Answer changes the result of a Get.
	Answer func(*provider.Instance)
}

// Will adds steps for the next calls of an operation: Create, Get, Delete or Adopt. Calls after the last step succeed.
func (c *Cloud) Will(operation string, steps ...Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script[operation] = append(c.script[operation], steps...)
}

// Fail lets the next calls of an operation fail, with one error each.
func (c *Cloud) Fail(operation string, errs ...error) {
	for _, err := range errs {
		c.Will(operation, Step{Err: err})
	}
}

// Recover removes all remaining steps.
func (c *Cloud) Recover() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.script)
}

func (c *Cloud) step(operation string) Step {
	queue := c.script[operation]
	if len(queue) == 0 {
		return Step{}
	}
	c.script[operation] = queue[1:]
	if during := queue[0].During; during != nil {
		during()
	}
	return queue[0]
}
