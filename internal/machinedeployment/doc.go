// Package machinedeployment keeps a MachineDeployment's number of machines and rolls changes of its template out.
//
// A pass over a deployment gathers, decides and applies. It gathers the deployment's MachineSets and counts their
// Machines itself (observe.go, claim.go); it never relies on the counts in a set's status, which come late by design. It
// decides in pure functions: which set is of the wanted template (revision.go, hash.go), how many machines each set
// shall have (plan.go and plan_*.go, within the bounds of draft.go), what of the template reaches existing machines in
// place (propagate.go), and what to tell people (progress.go, status.go). It applies at most one patch for each set and
// one for the status (apply.go, report.go).
//
// Two bounds hold for every write, whatever was observed before it:
//
//   - A set grows only if afterwards no more than replicas + maxSurge machines can exist. What can exist is an upper
//     bound: a set counts with the greatest of what it has, what it was told to have, and what it may still believe it
//     was told.
//   - A set shrinks only if afterwards at least replicas − maxUnavailable machines are surely available, or if no
//     available machine can be lost by it. What is surely available is a lower bound: the set's choice of victims is
//     assumed to be the worst that its deletion order permits.
//
// Where a person's change or a machine's own failure has exceeded a bound, it is only ever approached again.
//
// A controller of its own, the Marker, marks the Nodes of old revisions meanwhile (marks.go, marker.go): what it does, or
// cannot do while the target cluster is away, holds up no rollout.
//
// With the strategy InPlace machines go from set to set and stay what they are (plan_inplace.go, package handover). People
// cannot choose the machines yet: with the orchestration Manual the condition Progressing says so, and machines of old
// revisions are left alone.
package machinedeployment
