// Package driver is the provider.Driver of Microsoft Azure.
//
// A machine is one virtual machine with a network interface for each entry of spec.networkInterfaces, their public IP
// addresses, and managed disks. The names of all resources follow from the cluster, the machine's UID and the
// attempt, so the leftovers of an interrupted call can be found by name. All resources have Machinist's tags.
// Interfaces, addresses and disks have the delete option "Delete": Azure deletes them with the virtual machine, and
// Delete checks afterwards that they are gone.
//
// The driver keeps only clients in memory. It waits for an operation of the cloud only when it creates public
// addresses and network interfaces. That takes a second or two, and Azure does not accept a virtual machine whose
// interface does not exist.
package driver
