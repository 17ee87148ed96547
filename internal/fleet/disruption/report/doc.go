// Package report keeps the status of MachineDisruptionBudgets, and counts them for metrics. It is for people: whoever
// disrupts machines counts for itself. Without a budget it reads and writes nothing.
package report
