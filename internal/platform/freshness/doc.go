// Package freshness decides whether the cache of a controller is recent enough for decisions.
//
// A controller that corrects the number of objects must know all of its own writes and all writes of the previous
// process. A cache alone does not show whether it contains these writes. For example, the API server creates an object,
// but its response is lost. The cache does not contain the object yet. The controller counts one object too few and
// creates another one. Three rules prevent this race:
//
//   - A new process reads a live LIST before its first decision. The cache may be trusted when it is at least as new
//     as that LIST, because then it contains all writes of earlier processes. (A client that reads its own writes has
//     the confirmed writes of this process.)
//   - A write whose outcome is Ambiguous ends the trust, because the cache may lack its effect. The next decision
//     reads a live LIST again.
//   - A LIST counts only if it began after the last ambiguous write. Another worker may make such a write during the
//     LIST, so the worker takes a Mark before it, and a LIST with an old Mark is ignored.
//
// Tracker implements these rules. Decisions is for two controllers of one process: the first one decides, and the
// second one acts. Controllers run the LISTs themselves. This package only records their results.
package freshness
