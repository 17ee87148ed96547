// Package machineset keeps a MachineSet's number of machines.
//
// A pass over a set consists of rounds. Each round gathers what is known of the set (observe.go, with what the deployment
// needs and has room for in kept.go and room.go), decides what to do (scale.go, with the order of deletion in
// deletion_order.go, the replacement of failed machines in remediation.go, what a template brings to its machines in
// template.go and the autoscaler's marks in marks.go), and does it (apply.go, create.go; hand_over.go for machines that go
// to another set of the deployment). The pass ends with the round that finds nothing left to do, or nothing that may be
// done now, and writes the status (status.go, report.go).
//
// Exactness rests on what a decision is made from:
//
//   - A round counts machines by the UID of their controller in a cache that has all of this process's own writes.
//   - The first decision to change something after the process began, and any after a write whose outcome is unknown,
//     is made from a live LIST instead; from then on the cache is trusted once it is as new as that LIST.
//   - Victims are chosen only from machines at least as new as the set's spec: an autoscaler marks a Machine and then
//     lowers replicas, and the mark must have been seen.
//   - A set of a deployment that hands machines over creates only on a view at least as new as its spec too.
//   - Before a round creates, adopts, hands over or deletes, a live GET of the set confirms the spec that was decided
//     upon. A machine is adopted, or deleted on grounds of its health, only after a live GET of the machine too.
//
// Everything that is decided is decided by pure functions; only observe.go, kept.go, room.go, apply.go, create.go,
// hand_over.go and report.go touch the API server.
package machineset
