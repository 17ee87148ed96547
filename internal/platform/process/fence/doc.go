// Package fence answers one question: does this process surely still hold the leader's Lease? Every action that must
// happen at most once checks the fence immediately before it acts. When the fence closes, all work in progress is
// cancelled.
//
// The answer depends on time, not on callbacks. Guard wraps the lock of the Lease. For each successful renewal it notes
// the time before the request was sent. Another candidate waits for a lease duration from the moment at which it
// observed that renewal, which is later. The renew deadline is shorter than the lease duration, so no other process
// acts until the renew deadline has passed since the noted time. The fence is open for exactly that time.
//
// The clock is Go's monotonic clock. It continues while the process is stopped (SIGSTOP, a debugger, a throttled
// cgroup), but stands still while the whole machine is suspended. After its host was suspended and resumed, a process
// may therefore wrongly consider itself the leader, for at most the rest of the renew deadline. Idempotency tokens and
// preconditions make its actions during that time harmless.
//
// A closed fence never opens again. The process ends, and its successor starts from the state in the API server.
package fence
