// Package machineclass reconciles the MachineClasses of one provider. In the status of each class, it reports whether
// the provider can create instances from the class, and which resources the Nodes of these instances will have. It also
// protects objects that are in use: a class cannot be deleted while a Machine uses it, and a Secret cannot be deleted
// while a class refers to it.
//
// The controller calls the cloud only if a class is new, if its Secret has changed, or if an earlier call failed
// with an error that may be temporary.
package machineclass
