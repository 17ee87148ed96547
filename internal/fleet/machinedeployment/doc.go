// Package machinedeployment maintains the number of machines of a MachineDeployment and rolls out changes of its
// template.
//
// A pass over a deployment has three steps:
//
//   - Observe: claim.go and observe.go read the deployment's MachineSets and count their Machines. They do not use the
//     counts in the status of a set, which may be outdated.
//   - Decide: revision.go and hash.go find the set with the wanted template. plan.go and plan_*.go decide the replicas
//     of each set within the bounds of draft.go. propagate.go selects the fields of the template that need no new
//     machines. progress.go and status.go compute the status. All these are pure functions.
//   - Apply: apply.go writes at most one patch for each set, and report.go one patch for the status.
//
// Every write keeps two bounds:
//
//   - A set grows only if at most replicas + maxSurge machines can exist afterwards. If a set's controller has not
//     observed the latest replicas yet, the deployment counts the highest number of machines that can result.
//   - A set shrinks only if at least replicas − maxUnavailable machines stay available, whichever surplus machines
//     the set chooses. A set that cannot lose an available machine may always shrink.
//
// The deletion or failure of a machine outside of a rollout may still violate a bound. The next writes of the
// deployment then restore the number of machines.
//
// The deployment never writes Nodes. The deployment annotates the sets of old revisions (outdated.go), and the
// provider taints the Nodes of their machines. Rollouts do not wait for these taints.
//
// With the strategy InPlace, machines are not replaced but moved from set to set (plan_inplace.go, package handover).
// With the orchestration Manual, an administrator selects the machines with a label.
package machinedeployment
