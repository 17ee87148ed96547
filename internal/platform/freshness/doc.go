// Package freshness decides whether the cache of a controller is recent enough for decisions.
//
// A controller that counts objects, and creates or deletes some to correct their number, must know all of its own
// writes and all writes of the previous process. From a cache alone, a controller cannot tell whether the cache
// contains these writes. The following race must be prevented: For example, the API server creates an object, but
// its response is lost. The cache does not contain the object yet, so the controller counts one object too few and
// creates another one. The rule has three parts:
//
//   - A new process reads a live LIST before its first decision. The cache may be trusted when it is at least as new
//     as that LIST, because then it contains all writes of earlier processes. (A client that reads its own writes has
//     the confirmed writes of this process.)
//   - A write whose outcome is Ambiguous ends the trust, because the cache may lack its effect. The next decision
//     reads a live LIST again.
//   - A LIST counts only if it began after the last ambiguous write. Another worker may make such a write during the
//     LIST, so the worker takes a Mark before it, and a LIST with an old Mark is ignored.
//
// Tracker implements the rule. Decisions is for two controllers of one process: the first controller makes a decision
// and the second controller carries it out. Decisions tells the second controller that its cache is new enough. This
// package does not read lists. The controllers decide when they need a LIST and which objects they list. This
// package only records the results.
package freshness
