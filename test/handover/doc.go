// Package handover is a deterministic world of processes that divide namespaces among each other (package sharding) and
// hand them over by leases: those of single shards, the one that all shards hold together, and that of a process
// without shards. It has the real locks, fences and hashes, an API server that loses and delays requests, and people
// who kill, stop and freeze processes and change the number of shards while the old ones still run.
//
// Two rules are checked: no namespace ever has two owners, which is two processes with an open fence that own it; and
// when nothing goes wrong any more, each has one before a lease and a few retries are over.
package handover
