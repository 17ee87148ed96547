// Package driver is the provider.Driver of libvirt. The instance of a Machine is a domain with volumes in storage
// pools.
//
// Create first creates the volumes, under names that contain the cluster, the Machine's UID and the attempt. Then one
// call creates and starts the domain, with its identity in its metadata. Therefore every domain that exists has been
// started. The UUID of the domain follows from the token, and libvirt does not allow two domains with one UUID.
// Finally Create makes the domain persistent, so that it survives a restart of the hypervisor.
//
// libvirt's client library does not support contexts. Therefore a driver call has a connection from a pool to itself,
// and the end of its context closes that connection.
package driver
