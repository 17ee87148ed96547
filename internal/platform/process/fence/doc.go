// Package fence determines whether this process certainly still holds the leader's Lease. Actions that another leader
// must not repeat check the fence immediately before they act. When the fence closes, all work in progress is
// cancelled.
//
// The answer depends on time, not on callbacks. The elector renews the Lease through the Lock that Guard returns. For
// each successful renewal, the Lock records the time before the request was sent. The fence closes one renew deadline
// after this time. Other candidates observe the renewal later, and then wait for a lease duration, which is longer than
// the renew deadline. Therefore no other process acts before the fence closes.
//
// The clock is Go's monotonic clock. This clock advances while the process is stopped (SIGSTOP, a debugger, a
// throttled cgroup), but not while the whole host is suspended. After the host resumes, a former leader may act for
// at most the rest of the renew deadline. Idempotency tokens and preconditions make these actions harmless.
//
// A closed fence never opens again. The process ends, and its successor starts from the state in the API server.
package fence
