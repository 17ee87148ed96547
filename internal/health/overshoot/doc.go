// Package overshoot stops the creation of machines for a fleet that has more machines than its owners want.
//
// A set counts its machines before it creates one. A surplus therefore means that something else creates machines in
// the name of the set, or that there is a bug. Machines cost money, so the fleet is frozen, and the freeze is reported,
// until the surplus is gone.
//
// Machines are counted per fleet: a MachineDeployment with its sets, or a standalone MachineSet. Decide makes the
// decision from numbers only. The Reconciler counts, and freezes and thaws fleets with the label that the owners'
// controllers obey.
package overshoot
