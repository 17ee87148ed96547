// Package machineset keeps the number of machines of a MachineSet equal to spec.replicas.
//
// A pass over a set consists of rounds. Each round has three steps:
//
//   - Observe: observe.go reads the set and its machines. availability.go reads how many available machines the
//     deployment needs. capacity.go reads how many more machines the deployment may have.
//   - Decide: scale.go returns a Plan. Package victims chooses the surplus machines to delete. remediation.go chooses
//     the failed machines to replace. template.go propagates the template in place. autoscaler_delete_annotation.go
//     finds stale annotations.
//   - Apply: apply.go and create.go carry the plan out. handover.go moves machines to another set of the deployment.
//
// A pass ends when a round has nothing left to change. Then the pass writes the status (status.go, report.go).
//
// The number of machines is exact, because each decision uses data that is new enough:
//
//   - A round counts machines by the UID of their controller. The cache must contain all of this process's own writes.
//   - The first decision of a process uses a live LIST. After a write of unknown outcome, the next decision uses a live
//     LIST too. When the cache is as new as the LIST, the set uses the cache again.
//   - Surplus machines are chosen only if the cache is at least as new as the set's spec. An autoscaler annotates a
//     Machine before it lowers replicas, so the cache must contain the annotation.
//   - A set that may receive machines from another set creates machines only if the cache is at least as new as the
//     set's spec.
//   - Before each write that changes the number of machines, a live GET of the set confirms that the spec has not
//     changed. Before a machine is adopted or remediated, a live GET confirms the state of the machine too.
//
// Pure functions make all decisions. The only files that call the API server are observe.go, availability.go,
// capacity.go, apply.go, create.go, handover.go and report.go.
package machineset
