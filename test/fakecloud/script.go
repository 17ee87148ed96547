package fakecloud

import (
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// Step is what happens to one call of an operation.
type Step struct {
	// Err is what the call returns instead of its result.
	Err error
	// Late lets the effect of a Create or Adopt happen that much later, whatever the call returns.
	Late time.Duration
	// During runs while the call is under way.
	During func()
	// Spent lets the instance of a Create come and go at once.
	Spent bool
	// Unseen lets a Delete miss the instance and report Gone, as a read does that is behind.
	Unseen bool
	// Answer changes the result of a Get.
	Answer func(*provider.Instance)
}

// Will adds steps for the next calls of an operation: Create, Get, Delete or Adopt. A call after the last step does
// what it is asked for.
func (c *Cloud) Will(operation string, steps ...Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.script[operation] = append(c.script[operation], steps...)
}

// Fail makes the next calls of an operation fail, one error each.
func (c *Cloud) Fail(operation string, errs ...error) {
	for _, err := range errs {
		c.Will(operation, Step{Err: err})
	}
}

// Recover drops all steps that are left.
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
