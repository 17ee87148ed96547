// Package orphans finds the instances of a provider that have no Machine, and removes them.
//
// It is a safety net, because a Machine is deleted only after its instance. An orphan means that a finalizer was
// removed by hand, that the control cluster lost a Machine, or that there is a bug. A removed instance cannot be
// restored, so in doubt it is kept: see Decide.
//
// The lists also show Machines whose instance is missing. The collector makes their controllers check the instance.
package orphans
