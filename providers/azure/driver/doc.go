// Package driver implements provider.Driver for Microsoft Azure.
//
// A machine consists of a virtual machine, network interfaces, public IP addresses and managed disks. All names are
// derived from the cluster, the machine's UID and the attempt. So leftovers of an interrupted call can be found by
// name. All resources have Machinist's tags. Interfaces, addresses and disks have the delete option "Delete": Azure
// deletes them with the virtual machine, and Delete checks this.
//
// The driver keeps only clients in memory. It waits only for the creation of public addresses and network interfaces,
// which takes one or two seconds: a virtual machine needs existing interfaces.
package driver
