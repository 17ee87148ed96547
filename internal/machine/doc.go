// Package machine reconciles the Machines of one provider. For each Machine it creates an instance, waits for its Node,
// applies the node template and watches the health of both. When the Machine is deleted, it drains the Node and deletes
// the instance, the Node and the Machine, in this order.
//
// A pass over a Machine runs these steps in order: claim, launch, registration, health; or, for a Machine with a
// deletionTimestamp, the deletion. The next step follows at once, unless a step has to wait. A pass writes what it
// learned in at most one patch of the Machine, one of its Node and one of its status. Everything that the reconciler
// remembers can be learned again: its memory only saves calls and holds the settle time of creations whose answers were
// lost.
package machine
