// Package driver is the provider.Driver of Microsoft Azure.
//
// A machine is one virtual machine with a network interface for each entry of spec.networkInterfaces, their public IP
// addresses, and managed disks. All have names that follow from the cluster, the machine's UID and the attempt, so
// that whatever a call that was cut short has left is found by name, and carry Machinist's tags. Interfaces,
// addresses and disks are made with the delete option "Delete": they go with the virtual machine, and Delete looks
// afterwards whether they did.
//
// Nothing is kept in memory but clients, and nothing waits for an operation of the cloud but for the making of a
// network interface, which takes Azure a second or two and without which it takes no virtual machine.
package driver
