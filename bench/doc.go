// Command bench measures what Machinist costs: a real control plane, the manager and a provider as processes of their
// own, and a cloud that answers at once. For a fleet of N machines it creates them, leaves them alone while their
// nodes beat, exchanges all of them, and deletes them. API writes are counted in the API server's audit log; the time
// is compared with that of a bare client that sends the same writes.
//
//	go run ./bench --machines 1000
//	go run ./bench --scale 300,1000,3000,5000 --plot docs/performance.svg
//	go run ./bench migration --machines 10000
//	go run ./bench disruption --machines 1000
//	go run ./bench shards --machines 50000 --shards 4
//
// The last three measure what it costs to take a fleet of another system over, what MachineDisruptionBudgets cost, and
// how much memory a shard takes. The last one shows copies of a few machines to the programs: see standIn.
//
// It builds the two programs from the tree that it is run in; the control plane is that of hack/controlplane.
package main
