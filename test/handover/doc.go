// Package handover simulates processes that divide namespaces among each other (package sharding) and hand them over by
// Leases. There are three kinds of Leases: one for each shard, one that all shards hold together, and one for a process
// without shards.
//
// The simulation is deterministic and uses the real locks, fences and hashes. The simulated API server delays
// requests and loses some of them. Faults kill, stop and freeze processes. The number of shards also changes while
// old processes still run.
//
// The simulation checks two rules. First, a namespace never has two owners at the same time. An owner of a namespace
// is a process that serves the namespace and has an open fence. Second, after the last fault, each namespace gets an
// owner within the duration of a Lease and a few retries.
package handover
