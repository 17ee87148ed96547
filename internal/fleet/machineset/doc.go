// Package machineset keeps the number of machines of a MachineSet equal to spec.replicas.
//
// A pass over a set consists of rounds. Each round has three steps:
//
//   - Observe: observe.go reads the set and its machines, availability.go reads how many available machines the
//     deployment needs, and capacity.go reads how many more machines it may have.
//   - Decide: scale.go returns a Plan. Package victims chooses surplus machines, remediation.go chooses failed machines
//     to replace, template.go propagates the template in place, and autoscaler_delete_annotation.go finds stale
//     annotations.
//   - Apply: apply.go and create.go carry the plan out, and handover.go moves machines to another set of the
//     deployment.
//
// A pass ends when a round has nothing left to change. It then writes the status (status.go, report.go).
//
// The number of machines is exact, because each decision uses data that is new enough:
//
//   - A round counts machines by the UID of their controller, in a cache that contains all of this process's own
//     writes.
//   - The first decision of a process, and the first after a write of unknown outcome, uses a live LIST. From then on,
//     the set trusts a cache that is as new as that LIST.
//   - Victims are chosen only from machines at least as new as the set's spec. An autoscaler annotates a Machine and
//     then lowers replicas, so the set must have seen the annotation.
//   - A set that may receive machines from another set creates machines only if its view is at least as new as its
//     spec.
//   - Before each write that changes the number of machines, a live GET of the set confirms that the spec has not
//     changed. Before a machine is adopted or remediated, a live GET confirms the state of the machine too.
//
// Pure functions make all decisions. The only files that call the API server are observe.go, availability.go,
// capacity.go, apply.go, create.go, handover.go and report.go.
package machineset
