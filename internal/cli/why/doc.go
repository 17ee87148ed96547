// Package why explains in plain words why machines, fleets and classes wait: for what, since when, what ends the wait,
// and what an administrator can do.
//
// All functions are pure: they compute findings from facts that the caller has read. A table contains an explanation
// for each reason that a controller of Machinist sets in a condition.
package why
