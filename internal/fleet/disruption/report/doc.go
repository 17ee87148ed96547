// Package report writes the status of MachineDisruptionBudgets and exports their metrics. The status and the
// metrics are only for information: the controllers that disrupt machines do not read them, but count the machines
// with package disruption. If there is no budget, package report reads and writes nothing.
package report
