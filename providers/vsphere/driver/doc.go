// Package driver is the provider.Driver of VMware vSphere. It calls vCenter through its SOAP API.
//
// # Identity
//
// One hash of the cluster ID and of the virtual machine's name, which contains the token, gives both UUIDs of a virtual
// machine. The provider ID contains the BIOS UUID, like the Nodes of the cloud controller manager. The driver knows it
// before the clone exists.
//
// The tags are in the extra configuration of the virtual machine, which its guest cannot change. A copy of a virtual
// machine has the same extra configuration. Therefore the extra configuration also contains the instance UUID: a copy
// gets another one from vCenter, so its tags do not count.
//
// # Tasks
//
// A clone is a task of minutes, for which Create does not wait. The operation ID of the request contains the name of
// the virtual machine, and vCenter shows it as the activation ID of the task. Calls without a handle find the task in
// this way. Two clones with the same name cannot both succeed, because names are unique in a folder.
package driver
