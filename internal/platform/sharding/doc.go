// Package sharding divides the namespaces of the control cluster among several processes. It is for fleets that are too
// large for one leader.
//
// A namespace is never divided, because some objects affect the machines of several owners in their namespace.
// MachineSets claim Machines by a selector. For example, a MachineDisruptionBudget and a MachineHealthCheck count
// all machines that they select. A MachineClass serves every machine that names it, and a Secret serves a class. If
// one process serves the whole namespace, it can enforce all of these rules alone, as it does with --namespace. If
// a process served only every fourth owner in a namespace, it could not enforce them.
//
// A Shard depends only on the name of a namespace and the number of shards, so processes only have to agree on that
// number. The Lease that all shards hold together ensures that they agree on the number (fence.Joint).
//
// The API server has its own hash for this purpose (KEP-5866: ListOptions.ShardSelector, alpha in Kubernetes 1.36).
// Machinist does not use this hash, because it consists of the first bits of FNV-1a. The last characters of a name have
// almost no influence on these bits. The namespaces team-a to team-z would all be in one of four shards
// (TestTheAPIServersHashKeepsSimilarNamesTogether). Instead, each process receives all objects, and drops the objects
// of other shards before it stores them.
package sharding
