// Package orphans finds the instances of a provider that have no Machine, and removes them.
//
// The removal of orphans is a safety net, because a Machine is deleted only after its instance. An orphan means that
// a finalizer was removed by hand, that the control cluster lost a Machine, or that there is a bug. A removed
// instance cannot be restored, so Decide keeps an instance unless it is certainly an orphan.
//
// The lists also show which Machines have lost their instance. The collector triggers the Machine controller for each
// such Machine, so that it looks the instance up.
package orphans
