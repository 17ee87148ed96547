// Package driver implements provider.Driver for Microsoft Azure.
//
// A machine is one virtual machine with a network interface for each entry of spec.networkInterfaces, their public IP
// addresses, and managed disks. The names of all resources are derived from the cluster, the machine's UID and the
// attempt, so the leftovers of an interrupted call can be found by name. All resources have Machinist's tags.
// Interfaces, addresses and disks have the delete option "Delete": Azure deletes them with the virtual machine, and
// Delete checks afterwards that they are gone.
//
// The driver keeps only clients in memory. It waits for an operation of the cloud only when it creates public addresses
// and network interfaces. This takes one or two seconds, and is necessary because Azure only creates a virtual machine
// whose interfaces already exist.
package driver
