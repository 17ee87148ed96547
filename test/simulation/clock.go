package simulation

import "time"

// clock is the simulated time. Only the scheduler moves this clock.
type clock struct{ at time.Time }

// Now implements clock.PassiveClock.
func (c *clock) Now() time.Time { return c.at }

// Since implements clock.PassiveClock.
func (c *clock) Since(t time.Time) time.Duration { return c.at.Sub(t) }

// wallClock is the wall clock of the host of a process.
type wallClock struct {
	*clock
	behind time.Duration
}

// Now implements clock.PassiveClock.
func (c *wallClock) Now() time.Time { return c.at.Add(-c.behind) }

// Since implements clock.PassiveClock.
func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
