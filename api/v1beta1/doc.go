// Package v1beta1 holds the types of the API group machinist.dev.
//
// A MachineDeployment owns MachineSets, a MachineSet owns Machines, and a Machine is one virtual machine at a cloud
// provider that becomes one Node. A MachineClass says how to make an instance, a MachineHealthCheck when one must be
// replaced. The package depends on the Kubernetes API types only, so that any client can import it.
//
// +kubebuilder:object:generate=true
// +groupName=machinist.dev
package v1beta1
