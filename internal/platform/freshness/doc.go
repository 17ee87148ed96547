// Package freshness decides whether the cache of a controller is recent enough for decisions.
//
// A controller that corrects the number of objects must know all of its own writes and all writes of the previous
// process. A cache alone does not show whether it contains these writes. For example, the API server creates an object,
// but its response is lost. The cache does not contain the object yet. The controller counts one object too few and
// creates another one. Three rules prevent this race:
//
//   - A new process reads a live LIST before its first decision. The cache may be trusted when it is at least as new as
//     that LIST, because the cache then contains all writes of earlier processes. (A client that reads its own writes
//     has the confirmed writes of this process.)
//   - After a write whose outcome is Ambiguous, the cache may no longer be trusted, because it may lack the effect of
//     the write. The controller reads a live LIST again before its next decision.
//   - A LIST is used only if it began after the last ambiguous write. Another worker may make such a write during the
//     LIST. Therefore a worker takes a Mark before its LIST, and Tracker ignores a LIST with an old Mark.
//
// Tracker implements these rules. Decisions connects two controllers of one process: the first controller decides,
// and the second controller acts. This package sends no requests: controllers read the live LISTs and record the
// results with Tracker.
package freshness
