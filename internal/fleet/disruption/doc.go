// Package disruption decides which machines may be taken out of service for a reason other than a scale-down. Examples
// are the replacement of a machine that is unhealthy, too old or outdated, and an update in place. Each such disruption
// needs room in the MachineDisruptionBudgets of the namespace. Only this package evaluates budgets.
//
//   - machine.go determines which machines are disrupted. Only the Machine object matters, so a new process knows at
//     once what its predecessor did.
//   - budget.go parses a budget.
//   - view.go counts the machines of a namespace against its budgets and divides the room that is left. It is pure.
//   - ledger.go remembers grants that are not written yet, and which controllers wait for room.
//   - count.go reads the budgets and machines that a view needs.
//
// Budgets only forbid disruptions. The limits of rollouts, remediations and drains apply as well.
package disruption
