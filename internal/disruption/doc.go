// Package disruption limits how many machines are disrupted at a time, by the MachineDisruptionBudgets.
package disruption
