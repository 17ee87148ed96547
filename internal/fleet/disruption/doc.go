// Package disruption decides which machines may be taken out of service for a purpose other than a scale-down.
// Examples are the replacement of a machine that is unhealthy, too old or of an old revision, and an update in
// place. Each such decision needs room in the MachineDisruptionBudgets of the machine's namespace. Only this
// package evaluates budgets.
//
//   - machine.go determines which machines are disrupted. This depends only on the Machine object. So nothing else is
//     written, and a process that starts knows immediately what its predecessor did.
//   - budget.go parses a budget.
//   - view.go counts the machines of a namespace against its budgets and divides the room that is left. It is pure.
//   - ledger.go remembers what this process has granted but not written yet, and which controllers wait for room.
//   - count.go reads the budgets and machines that a view needs.
//
// Budgets can only forbid disruptions. The limits of rollouts, remediations and drains still apply.
package disruption
