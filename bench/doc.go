// Command bench measures the costs of Machinist. It runs a real control plane, the manager and a provider as separate
// processes, and a cloud that answers at once. It creates a fleet of N machines, leaves the fleet idle while its
// nodes send heartbeats, replaces all machines, and deletes them. It counts the API writes in the audit log of the API
// server. It also measures how long a bare client takes for the same writes.
//
//	go run ./bench --machines 1000
//	go run ./bench --scale 300,1000,3000,5000 --plot docs/performance.svg
//	go run ./bench migration --machines 10000
//	go run ./bench disruption --machines 1000
//	go run ./bench shards --machines 50000 --shards 4
//
// The last three commands measure the cost of a migration from another system, the cost of MachineDisruptionBudgets,
// and the memory of a shard. The last command serves the programs many copies of a few machines: see standIn.
//
// The bench builds the two programs from the source tree in which it runs. It uses the control plane of
// hack/controlplane.
package main
