// Package report writes the status of MachineDisruptionBudgets and exports their metrics. Both are only informative:
// the controllers that disrupt machines count machines themselves, with package disruption. Without a budget, package
// report reads and writes nothing.
package report
