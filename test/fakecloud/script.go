package fakecloud

import (
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// Step defines the behavior of one call of an operation.
type Step struct {
	// Err is the error that the call returns.
	Err error
	// EffectDelay is the delay until a Create or Adopt takes effect. The call returns its result without this delay.
	EffectDelay time.Duration
	// The cloud calls During, if it is not nil, while the driver's call is in progress.
	During func()
	// If TokenUsed is set, the cloud treats the token of a Create as used, as if an instance with this token had been
	// created and removed.
	TokenUsed bool
	// If ReportsGone is true, Delete reports Gone and deletes nothing, like a provider whose lookup did not find the
	// instance.
	ReportsGone bool
	// EditAnswer, if set, may change the instance that Get returns.
	EditAnswer func(*provider.Instance)
}

// Script sets the results of the next calls of an operation, with one step for each call. The operation is Create,
// Get, Delete, Adopt or Joined. Calls after the last step succeed.
func (c *Cloud) Script(operation string, steps ...Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script[operation] = append(c.script[operation], steps...)
}

// Fail makes the next calls of an operation fail with the given errors, one for each call.
func (c *Cloud) Fail(operation string, errs ...error) {
	for _, err := range errs {
		c.Script(operation, Step{Err: err})
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
