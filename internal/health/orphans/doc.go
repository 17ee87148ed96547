// Package orphans finds the instances of a provider that have no Machine, and removes them.
//
// It is a safety net. A Machine is deleted only after its instance. An orphan therefore means that a finalizer was
// removed by hand, that a Machine was lost together with the data of the control cluster, or that there is a bug. A
// removed instance cannot be restored. If there is any doubt, the instance is kept: see Decide.
//
// The same lists of instances also reveal the opposite case: a Machine whose instance is missing. The collector then
// makes the Machine's controller check the instance.
package orphans
