// Package machineclass reconciles the MachineClasses of one provider. The status of a class reports whether the
// provider can create instances from it, and which resources their Nodes will have. The package also protects objects
// in use: a class while a Machine uses it, and a Secret while a class refers to it.
//
// The cloud is called only for a new class, after a change of its Secret, or after a temporary error.
package machineclass
