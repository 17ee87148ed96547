// Package driver implements provider.Driver for OpenStack. The instance of a Machine is a server of Nova with ports of
// Neutron and volumes of Cinder.
//
// Nova has no idempotency tokens, so the driver uses ports and volumes instead. Create creates the ports and the
// volumes before the server. The names of the ports and volumes are derived from the token. Each port and each volume
// can belong to only one server. So Nova refuses a second server with the same ports and volumes, or the creation of
// this server fails. Before Create repeats a request, it replaces the unused ports. If the previous request arrives
// later, it fails, because its ports no longer exist.
//
// The metadata of servers and volumes and the description of ports identify the cluster and the Machine. These values
// are set when the object is created. The tags of ports cannot be used, because Neutron ignores tags in this call.
package driver
