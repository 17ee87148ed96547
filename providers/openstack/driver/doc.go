// Package driver is the provider.Driver of OpenStack. The instance of a Machine is a server of Nova with ports of
// Neutron and volumes of Cinder.
//
// Nova has no idempotency token, so ports and volumes take its place. Create first creates them, under names that
// follow from the token. A port belongs to at most one server, and a volume is reserved for one server. Therefore a
// second creation with the same parts is refused or fails. Before a creation is repeated, its unused ports are
// replaced, so that a request that is still in transit finds no ports.
//
// The metadata of a server, the metadata of a volume and the description of a port identify the cluster and the
// Machine. Each of them is written by the call that creates the object. The tags of ports are not.
package driver
