// Package machineclass looks after the MachineClasses of one provider. It tells in their status whether the provider
// can make instances of them and what their Nodes will offer, and keeps what is in use from being deleted: a class
// while a Machine uses it, a Secret while a class refers to it.
//
// The provider's cloud is asked when a class is new, when its Secret changed or when an earlier answer was a failure
// that may pass; never otherwise.
package machineclass
