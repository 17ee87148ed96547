// Package driver implements provider.Driver for libvirt. The instance of a Machine is a domain with volumes in storage
// pools.
//
// Create first creates the volumes, under names that contain the cluster, the Machine's UID and the attempt. Then a
// single call creates and starts the domain. The domain's metadata identify the Machine. Therefore, every domain that
// exists has been started at least once. The UUID of the domain is derived from the token, and libvirt does not allow
// two domains with one UUID. Finally Create makes the domain persistent, so that it survives a restart of the
// hypervisor.
//
// libvirt's client library does not support contexts. Therefore, each driver call takes a connection from a pool for
// its exclusive use. If the context of the call ends, the driver closes this connection.
package driver
