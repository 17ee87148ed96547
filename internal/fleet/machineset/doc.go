// Package machineset keeps a MachineSet's number of machines.
//
// A pass over a set consists of rounds. Each round has three steps:
//
//   - Observe: observe.go reads the set and its machines, availability.go how many available machines the deployment
//     needs, capacity.go how many more machines it may have.
//   - Decide: scale.go returns a Plan. package victims chooses surplus machines, remediation.go replaces failed
//     machines, template.go propagates the template in place, autoscaler_annotation.go removes stale annotations.
//   - Apply: apply.go and create.go carry the plan out, handover.go moves machines to another set of the deployment.
//
// The pass ends with the round that finds nothing to do, or nothing that may be done now, and writes the status
// (status.go, report.go).
//
// Exact numbers of machines depend on what a decision reads:
//
//   - A round counts machines by the UID of their controller in a cache that has all of this process's own writes.
//   - The first decision of a process that changes something, and the first after a write of unknown outcome, reads a
//     live LIST. From then on the set trusts the cache once it is as new as that LIST.
//   - Victims are chosen only from machines at least as new as the set's spec: an autoscaler annotates a Machine and
//     then lowers replicas, so the set must have seen the annotation.
//   - A set of a deployment that hands machines over creates only from a view at least as new as its spec, too.
//   - Before a round creates, adopts, hands over or deletes, a live GET of the set confirms the spec that it decided
//     upon. A machine is adopted, or deleted because of its health, only after a live GET of the machine too.
//
// Pure functions make all decisions; only observe.go, availability.go, capacity.go, apply.go, create.go, handover.go
// and report.go call the API server.
package machineset
