// Package machinedeployment keeps the number of machines of a MachineDeployment and rolls out changes of its template.
//
// A pass over a deployment has three steps:
//
//   - Observe: claim.go and observe.go read the deployment's MachineSets and count their Machines. The counts in the
//     status of a set are delayed by design, so the deployment does not rely on them.
//   - Decide, in pure functions: which set has the wanted template (revision.go, hash.go), the desired replicas of each
//     set (plan.go and plan_*.go, within the bounds of draft.go), which fields of the template are propagated in place
//     (propagate.go), and the status (progress.go, status.go).
//   - Apply: at most one patch for each set and one for the status (apply.go, report.go).
//
// Two bounds hold for every write, whatever was observed before it:
//
//   - A set grows only if no more than replicas + maxSurge machines can exist afterwards. This number is an upper
//     bound. For each set it uses the maximum of the machines that the set has, its spec.replicas, and earlier values
//     of spec.replicas that the set's controller may still act upon.
//   - A set shrinks only if at least replicas − maxUnavailable machines are guaranteed to be available afterwards, or
//     if the set cannot lose an available machine. The guaranteed number is a lower bound: it assumes that the set
//     chooses the worst victims that its deletion order permits.
//
// If an administrator's change or a failing machine exceeds a bound, every write brings the deployment closer to the
// bound.
//
// The deployment never writes Nodes. It annotates the sets of old revisions (outdated.go), and the provider taints the
// Nodes of their machines. No rollout waits for that.
//
// With the strategy InPlace, machines are not replaced but moved from set to set (plan_inplace.go, package handover).
// With the orchestration Manual, an administrator selects these machines with a label.
package machinedeployment
