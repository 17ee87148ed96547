// Package report writes the status of MachineDisruptionBudgets and exports their metrics. Controllers use neither the
// status nor the metrics for decisions: they count machines with package disruption. Without budgets, this package
// reads and writes nothing.
package report
