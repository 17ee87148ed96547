// Package report writes the status of MachineDisruptionBudgets and exports their metrics. Both are only for
// information: controllers count machines with package disruption. Without budgets, this package reads and writes
// nothing.
package report
