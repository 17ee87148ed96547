// Package disruption decides which machines may be taken out of service although nobody asked for fewer machines: to
// replace one that is unhealthy, old or of an old revision, or to change it in place. Each such decision asks the
// MachineDisruptionBudgets of the machine's namespace, and this package is the only one that knows them.
//
//   - machine.go says which machines are disrupted. It follows from what the Machine itself has, so that nothing has to
//     be written for it, and a process that starts knows at once what the one before it did.
//   - budget.go is a budget as it is understood.
//   - view.go counts a namespace's machines against its budgets, and divides the room that is left. It is pure.
//   - ledger.go keeps what this process has granted until it is written, and who waits.
//
// Budgets only ever take away. The bounds of a rollout, of a remediation and of a drain hold beside them.
package disruption
