// Package machine reconciles the Machines of one provider. For each Machine, it creates an instance, waits for its
// Node, applies the node template and monitors the health of both. When the Machine is deleted, it drains the Node.
// Then the controller deletes the instance, the Node and the Machine, in this order.
//
// A pass over a Machine runs the steps that controller.go lists. A Machine with a deletionTimestamp is deleted instead.
// The names of the files begin with the phase that a step belongs to: launch, register, serve, update or remove. The
// next step runs at once, unless a step has to wait. A pass sends at most one
// patch of the Machine, one of its Node and one of its status. The reconciler can rebuild its in-memory data at any
// time. This data saves calls, and contains the times until which a Create may still take effect after its answer was
// lost.
package machine
