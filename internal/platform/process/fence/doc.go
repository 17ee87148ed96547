// Package fence answers one question: is the leader's lease surely still ours? Everything that must happen at most once
// asks it immediately before it acts, and everything in progress is cancelled when the answer turns to no.
//
// The answer is a matter of time, not of callbacks. Guard wraps the lock of the lease and notes, of each renewal of
// ours that succeeded, the time before its request was sent. Whoever else wants the lease waits a lease duration from
// the moment at which it saw that renewal, which is later; so for a renew deadline from the noted time, which is
// shorter than the lease duration, nobody else acts. The fence is open exactly that long.
//
// Time is Go's monotonic clock, which goes on while the process is stopped (SIGSTOP, a debugger, a throttled cgroup),
// but stands still while the whole machine is suspended. A controller whose host was suspended may therefore, once it
// is resumed, take itself for the leader for the rest of the renew deadline, at most. Idempotency tokens and
// preconditions make harmless what it does in that time.
//
// A fence that closed never opens again: the process ends, and its successor starts from what is written down.
package fence
