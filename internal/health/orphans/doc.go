// Package orphans finds the instances of a provider that have no Machine, and removes them.
//
// It is a safety net. A Machine is deleted only after its instance, so an orphan means that a finalizer was removed by
// hand, that a Machine was lost with the control cluster's data, or that there is a bug. A removed instance cannot be
// restored. Any doubt therefore keeps an instance: see Decide.
//
// The same lists of instances also show the opposite case, a Machine whose instance is missing. The collector then
// makes the Machine's controller check the instance.
package orphans
