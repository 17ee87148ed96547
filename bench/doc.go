// Command bench measures what Machinist costs. The bench runs a real control plane, the manager and a provider as
// separate processes, and a simulated cloud without delays. The bench creates a fleet of N machines, leaves the fleet
// idle while its nodes send heartbeats, replaces all machines, and deletes them. The bench counts the API writes in
// the audit log of the API server. The bench also measures how long a bare client takes for the same writes.
//
//	go run ./bench --machines 1000
//	go run ./bench --scale 300,1000,3000,5000 --plot docs/performance.svg
//	go run ./bench migration --machines 10000
//	go run ./bench disruption --machines 1000
//	go run ./bench shards --machines 50000 --shards 4
//
// The subcommand migration measures a migration from another system. The subcommand disruption measures
// MachineDisruptionBudgets. The subcommand shards measures the memory of a shard, with many copies of a few recorded
// machines.
//
// The bench builds the manager and the provider from the current source tree. The control plane runs the binaries of
// the Go module hack/controlplane.
package main
