// Package overshoot stops the creation of machines for a fleet that has more machines than its owners want.
//
// A set counts its machines before it creates one. A surplus therefore means that something else creates machines in
// the name of the set, or that there is a bug. Machines cost money. The fleet is therefore frozen until the surplus is
// gone, and the freeze is reported.
//
// Machines are counted per fleet: a MachineDeployment with its sets, or a standalone MachineSet. Decide makes the
// decision from numbers only. The Reconciler counts machines. It freezes and thaws fleets with a label that the
// controllers of the owners obey.
package overshoot
