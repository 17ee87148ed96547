// Package overshoot stops the creation of machines where there are more of them than anything asked for.
//
// Sets count before they create, so that a surplus means that something else makes machines in their name, or that
// there is a bug. Machines cost money: until the surplus is gone again, nothing is added, and people are reported.
//
// What is counted together is a family: a MachineDeployment with its sets, or a MachineSet that nobody owns. Decide
// makes the decision from numbers alone; the Reconciler counts, and freezes and thaws with the label that owners
// obey.
package overshoot
