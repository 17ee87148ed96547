// Package v1beta1 contains the types of the API group machinist.dev.
//
// A MachineDeployment owns MachineSets, and a MachineSet owns Machines. A Machine is one virtual machine in a cloud,
// and becomes one Node. A MachineClass describes how to create an instance. A MachineHealthCheck defines when a machine
// is unhealthy, and a MachineDisruptionBudget limits how many machines are out of service at a time. A Provider
// installs a provider process, and a Migration takes over the fleet of another system.
//
// The package depends only on the Kubernetes API types, so that every client can import it.
//
// +kubebuilder:object:generate=true
// +groupName=machinist.dev
package v1beta1
