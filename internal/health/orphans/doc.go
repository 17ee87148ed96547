// Package orphans finds the instances of a provider that have no Machine any more, and removes them.
//
// It is the net below what Machines do themselves: a Machine goes only after its instance, so an orphan means that
// somebody took a finalizer away, that a Machine was lost with the control cluster's data, or that there is a bug.
// What is removed cannot be brought back, so everything that says otherwise, or is not known, keeps an instance: see
// Decide.
//
// The same list of instances shows what the other side lacks: a Machine whose instance is missing in it is asked to
// look.
package orphans
