// Package driver implements provider.Driver for OpenStack. The instance of a Machine is a server of Nova with ports of
// Neutron and volumes of Cinder.
//
// Nova does not support idempotency tokens, so the driver uses ports and volumes for this purpose. Create first creates
// the ports and the volumes. Their names are derived from the token. A port belongs to at most one server, and a volume
// is reserved for one server. Therefore a second creation with the same parts is refused or fails. Before Create
// repeats the request for a server, it replaces the unused ports. Therefore, a previous request that arrives later
// fails, because its ports no longer exist.
//
// The metadata of a server, the metadata of a volume and the description of a port identify the cluster and the
// Machine. Each of them is written by the call that creates the object. The tags of ports are not.
package driver
