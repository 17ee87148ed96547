// Package disruption decides which machines may be taken out of service for a reason other than a scale-down. Examples
// are the replacement of a machine that is unhealthy, too old or outdated, and an update in place. Each such disruption
// needs room in the MachineDisruptionBudgets of the namespace. Only this package evaluates budgets.
//
//   - machine.go decides from the Machine object alone whether the machine is disrupted.
//   - budget.go parses a budget.
//   - view.go compares the machines of a namespace with its budgets and decides which disruptions are allowed. It
//     contains only pure functions.
//   - ledger.go remembers grants that are not written yet, and the controllers whose requests were denied.
//   - count.go reads the budgets and machines that a view needs.
//
// Budgets only forbid disruptions. The limits of rollouts, remediations and drains apply as well.
package disruption
