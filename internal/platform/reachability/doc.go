// Package reachability knows whether the API servers answer, so that an outage is not taken for the death of machines.
//
// Each process looks for itself: State is the judgement of one API server, made from what was seen of it and nothing
// else, and Watch checks both clusters and tells the controllers what follows from it.
package reachability
