// Package why explains why machines, fleets and classes wait: for what, since when, what ends the wait, and what an
// administrator can do.
//
// All functions are pure. A table explains each reason that a controller of Machinist sets in a condition.
package why
