// Package machinedeployment keeps a MachineDeployment's number of machines and rolls changes of its template out.
//
// A pass over a deployment has three steps:
//
//   - Observe: claim.go and observe.go read the deployment's MachineSets and count their Machines. The counts in a
//     set's status come late by design, so the deployment does not rely on them.
//   - Decide, in pure functions: which set has the wanted template (revision.go, hash.go), the desired replicas of
//     each set (plan.go and plan_*.go, within the bounds of draft.go), which fields of the template are propagated in
//     place (propagate.go), and the status (progress.go, status.go).
//   - Apply: at most one patch for each set and one for the status (apply.go, report.go).
//
// Two bounds hold for every write, whatever was observed before it:
//
//   - A set grows only if afterwards no more than replicas + maxSurge machines can exist. The number that can exist
//     is an upper bound: a set counts with the greatest of the machines that it has, its spec.replicas, and earlier
//     values of spec.replicas that its controller may still act upon.
//   - A set shrinks only if afterwards at least replicas − maxUnavailable machines are guaranteed to be available, or
//     if it cannot lose an available machine. The guaranteed number is a lower bound: it assumes that the set chooses
//     the worst victims that its deletion order permits.
//
// If a person's change or a failing machine exceeds a bound, every write brings the deployment closer to it.
//
// A separate controller, the NodeTainter, taints the Nodes of old revisions (node_tainter.go, outdated_taint.go). A
// rollout does not wait for it, so an unreachable target cluster delays no rollout.
//
// With the strategy InPlace machines move from set to set and are not replaced (plan_inplace.go, package handover).
// With the orchestration Manual people select the machines by a label.
package machinedeployment
