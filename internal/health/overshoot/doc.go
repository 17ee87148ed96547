// Package overshoot stops the creation of machines for a fleet that has too many machines for its spec.replicas.
//
// A set counts its machines before it creates one. A surplus means that another client creates machines with the set as
// their owner, or that there is a bug. Because machines cost money, the fleet is frozen until the surplus is gone.
//
// A fleet is a MachineDeployment with its sets, or a standalone MachineSet. The function Decide uses only numbers of
// machines and times. The Reconciler counts machines, and freezes and thaws fleets with a label that other controllers
// obey.
package overshoot
