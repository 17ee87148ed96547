// Package overshoot stops the creation of machines for a fleet that has too many machines for its spec.replicas.
//
// A set counts its machines before it creates one. A surplus means that something else creates machines in its name, or
// that there is a bug. Because machines cost money, the fleet is frozen until the surplus is gone.
//
// A fleet is a MachineDeployment with its sets, or a standalone MachineSet. Decide makes the decision from numbers
// only. The Reconciler counts machines, and freezes and thaws fleets with a label that other controllers obey.
package overshoot
