// Command bench measures the costs of Machinist. It runs a real control plane, the manager and a provider as separate
// processes, and a cloud that answers at once. It creates a fleet of N machines, leaves the fleet idle while its
// nodes send heartbeats, replaces all machines, and deletes them. It counts API writes in the audit log of the API
// server, and compares the time with that of a bare client that sends the same writes.
//
//	go run ./bench --machines 1000
//	go run ./bench --scale 300,1000,3000,5000 --plot docs/performance.svg
//	go run ./bench migration --machines 10000
//	go run ./bench disruption --machines 1000
//	go run ./bench shards --machines 50000 --shards 4
//
// The last three commands measure the cost of a migration from another system, the cost of MachineDisruptionBudgets,
// and the memory of a shard. The last command shows copies of a few machines to the programs, see standIn.
//
// The bench builds the two programs from the source tree in which it runs. The control plane is that of
// hack/controlplane.
package main
