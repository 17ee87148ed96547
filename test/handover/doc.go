// Package handover simulates processes that divide namespaces among each other (package sharding) and hand them over by
// Leases. There are three kinds of Leases: one Lease for each shard, one Lease that all shards hold together, and one
// Lease for a process without shards.
//
// The simulation is deterministic. It uses the real implementations of locks, fences and hashes. Its API server delays
// requests, and loses some of them. Faults kill, stop and freeze processes. The runs also change the number of shards
// while the old processes are still running.
//
// The simulation checks two rules. First, a namespace never has two owners at the same time. An owner is a process with
// an open fence to which the namespace belongs. Second, after the last fault, each namespace gets an owner within the
// duration of a Lease and a few retries.
package handover
