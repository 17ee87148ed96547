// Package freshness says when a controller may decide from its cache.
//
// A controller that counts objects and creates or deletes some to correct their number must know all of its own
// writes, and those of the process before it. A cache does not say whether it has them. The race: a create succeeds,
// but its response is lost; the cache does not have the object yet; the controller counts one too few and creates
// another one. The rule has three parts:
//
//   - A new process reads a live LIST before its first decision. The cache may be trusted when it is at least as new
//     as that LIST: then it has all writes of earlier processes. (A client that reads its own writes has the
//     confirmed writes of this process.)
//   - A write whose outcome is Ambiguous ends the trust, because the cache may lack its effect. The next decision
//     reads a live LIST again.
//   - A LIST counts only if it began after the last ambiguous write. Another worker may make such a write during the
//     LIST, so the worker takes a Mark before it, and a LIST with an old Mark is ignored.
//
// Tracker implements the rule. Where one controller of a process decides and another one carries it out, Decisions
// tells the second that its cache knows enough. When a LIST is needed, and what it lists, is the controller's decision.
package freshness
