// Package driver is the provider.Driver of libvirt: a Machine is a domain with volumes of storage pools.
//
// Volumes are made first, under names that carry the cluster, the Machine's UID and the attempt. Then one call makes
// and starts the domain, with its identity in its metadata: there is no domain that has not run. The domain's UUID
// follows from the token, and libvirt has no two domains with one UUID. At last the domain is made persistent, so
// that it outlives the hypervisor's restart.
//
// libvirt's client library knows no contexts. So a call of the driver has a connection to itself, from a pool, and the
// end of its context closes that connection.
package driver
