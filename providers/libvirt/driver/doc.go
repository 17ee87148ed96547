// Package driver implements provider.Driver for libvirt. The instance of a Machine is a domain with volumes in storage
// pools.
//
// Create first creates the volumes. The names of the volumes contain the cluster, the Machine's UID and the attempt.
// Then Create creates and starts the domain in a single call. So a domain that exists was started at least once. The
// domain's metadata identify the Machine. The UUID of the domain is derived from the token, because libvirt refuses
// two domains with the same UUID. Finally, Create makes the domain persistent, so that it survives a restart of the
// hypervisor.
//
// libvirt's client library does not support contexts. So each driver call uses a pooled connection exclusively, and
// closes the connection when its context ends.
package driver
