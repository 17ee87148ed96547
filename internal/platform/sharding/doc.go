// Package sharding divides the namespaces of the control cluster among several processes. The package is for fleets
// that are too large for one leader.
//
// A namespace is never divided, because some objects affect the machines of several owners in their namespace. For
// example, MachineSets claim Machines by a selector, and a MachineDisruptionBudget counts all machines that it selects.
// Only a process that serves the whole namespace can enforce these rules.
//
// The shard of a namespace depends only on its name and the number of shards. The Lease that all shards hold together
// ensures that processes agree on this number (fence.Joint).
//
// Each process receives all objects, and drops the objects of other shards before it stores them. The API server can
// select shards itself (KEP-5866: ListOptions.ShardSelector, alpha in Kubernetes 1.36). The hash of the API server
// consists of the first bits of FNV-1a, which hardly depend on the end of a name. With four shards, the namespaces
// team-a to team-z would all be in the same shard (TestTheAPIServersHashKeepsSimilarNamesTogether). With the hash of
// UIDs, a set and its machines would be in different shards.
package sharding
