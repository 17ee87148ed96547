// Package machineclass reconciles the MachineClasses of one provider. It reports in their status whether the provider
// can create instances from them and what their Nodes will offer. It also protects objects that are in use from
// deletion: a class while a Machine uses it, and a Secret while a class refers to it.
//
// It calls the cloud only if a class is new, if its Secret has changed, or if an earlier call failed with an error that
// may be temporary.
package machineclass
