// Package report writes the status of MachineDisruptionBudgets and exports their metrics. Both are only for
// information: the controllers that disrupt machines do not read them, but count the machines with package disruption.
// If there is no budget, package report reads and writes nothing.
package report
