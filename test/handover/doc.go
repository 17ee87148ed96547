// Package handover simulates processes that divide namespaces among each other (package sharding) and hand them over by
// Leases. There are three kinds of Leases: one for each shard, one that all shards hold together, and one for a process
// without shards.
//
// The simulation is deterministic. It uses the real locks, fences and hashes. Its API server loses and delays requests.
// Faults kill, stop and freeze processes, and change the number of shards while the old processes still run.
//
// The simulation checks two rules. First, no namespace ever has two owners: two processes with an open fence that own
// it. Second, after the last fault, each namespace has an owner within the duration of a Lease and a few retries.
package handover
