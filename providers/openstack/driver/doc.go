// Package driver is the provider.Driver of OpenStack: a Machine is a server of Nova with ports of Neutron and volumes
// of Cinder.
//
// Nova has no idempotency token, so the parts stand in for one. Ports and volumes are made first, under names that
// follow from the token. A port belongs to one server at most, and a volume is reserved for one: a second creation
// with the same parts is refused or fails. Before a creation is repeated, its unused ports are replaced, so that a
// request that is still on its way finds none.
//
// A server's metadata, a volume's metadata and a port's description name the cluster and the Machine. Each of the
// three is written by the call that makes the thing: tags of ports are not.
package driver
