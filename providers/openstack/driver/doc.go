// Package driver implements provider.Driver for OpenStack. The instance of a Machine is a server of Nova with ports of
// Neutron and volumes of Cinder.
//
// Nova has no idempotency tokens, so the driver uses ports and volumes instead. Create first creates the ports and the
// volumes. Their names are derived from the token. A port or volume belongs to at most one server, so a second server
// with the same parts is refused or fails. Before Create repeats a request, it replaces the unused ports. If the
// previous request arrives later, it fails, because its ports no longer exist.
//
// The metadata of servers and volumes and the description of ports identify the cluster and the Machine. The call that
// creates the object sets them. The tags of ports cannot be used, because Neutron ignores tags in this call.
package driver
