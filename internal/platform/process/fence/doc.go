// Package fence determines whether it is certain that this process still holds the leader's Lease. Every action
// that must not be repeated by another leader checks the fence immediately before it acts. When the fence closes,
// all work in progress is cancelled.
//
// The answer depends on time, not on callbacks. Guard wraps the lock of the Lease. For each successful renewal,
// Guard records the time before the request was sent. Every other candidate observes the renewal later, and then
// waits for a lease duration. The renew deadline is shorter than the lease duration. Therefore no other process
// acts before the recorded time plus the renew deadline. The fence closes exactly at this time.
//
// The clock is Go's monotonic clock. It advances while the process is stopped (SIGSTOP, a debugger, a throttled
// cgroup), but not while the whole host is suspended. If the host is suspended and then resumed, a former leader may
// therefore act for at most the rest of the renew deadline. The actions of the former leader during this time are
// harmless because of idempotency tokens and preconditions.
//
// A closed fence never opens again. The process ends, and its successor starts from the state in the API server.
package fence
