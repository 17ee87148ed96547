// Package admission refuses at the door what the schema, CEL and the admission policies cannot judge, and warns of
// what is legal but unwise.
//
// The decisions are pure functions from objects to field errors and warnings. Two webhooks ask them: that of the
// manager about the core's kinds, and that of each provider about its providerSpec. Neither is in the way of
// deletion, finalizers or status, and an object that had a fault before may be changed otherwise: only new faults are
// refused. With the webhooks away every controller still meets any object that the CRDs admit, with a condition and
// an event.
package admission
