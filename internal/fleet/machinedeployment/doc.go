// Package machinedeployment maintains the number of machines of a MachineDeployment and rolls out changes of its
// template.
//
// A pass over a deployment has three steps:
//
//   - Observe: claim.go and observe.go read the deployment's MachineSets and count their Machines. The counts in the
//     status of a set are too old for decisions.
//   - Decide, in pure functions: which set has the wanted template (revision.go, hash.go), the desired replicas of each
//     set (plan.go and plan_*.go, within the bounds of draft.go), which fields of the template are propagated in place
//     (propagate.go), and the status (progress.go, status.go).
//   - Apply: at most one patch for each set and one for the status (apply.go, report.go).
//
// Every write keeps two bounds:
//
//   - A set grows only if at most replicas + maxSurge machines can exist afterwards. A set's controller may not have
//     observed its latest replicas yet, so the deployment counts the highest number of machines that can result.
//   - A set shrinks only if at least replicas − maxUnavailable machines stay available, even if the set deletes the
//     worst victims that its deletion order permits. A set that cannot lose an available machine may always shrink.
//
// An administrator or a failing machine may still violate a bound. Every later write then reduces the violation.
//
// The deployment never writes Nodes. It annotates the sets of old revisions (outdated.go), and the provider taints the
// Nodes of their machines. No rollout waits for that.
//
// With the strategy InPlace, machines are not replaced but moved from set to set (plan_inplace.go, package handover).
// With the orchestration Manual, an administrator selects the machines with a label.
package machinedeployment
