// Package why explains in plain words what machines, fleets and classes wait for: since when, what ends the wait, and
// what an administrator can do.
//
// The package is pure: its input is facts that the caller has read, its output is findings. One table has a sentence
// for each reason of a condition that a controller of Machinist sets.
package why
