// Package machine defines and validates the providerSpec of the OpenStack provider. It does not call OpenStack.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// These are the apiVersion and kind of the providerSpec.
const (
	APIVersion = "openstack.machinist.dev/v1beta1"
	Kind       = "OpenStackMachine"
)

// Spec is the providerSpec of the OpenStack provider. Fields that refer to OpenStack objects contain a name or an ID.
// If a name is ambiguous, the provider refuses to create the machine. hack/reference generates
// docs/reference/provider-specs.md from the comments of the fields. So these comments use the JSON names of fields.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Region is the region of the machine and all its parts. Default: the region in the credentials.
	Region string `json:"region,omitempty"`
	// AvailabilityZone is the availability zone of the server in Nova, such as "az-1". By default, Nova chooses the
	// zone.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// Flavor is the flavor of the server, such as "m1.small". Required.
	Flavor string `json:"flavor"`
	// Image is the image that the server boots. Set exactly one of id, name and tags. Required.
	Image Image `json:"image"`
	// RootVolume is a boot volume that the provider creates from the image and deletes with the machine. By default,
	// the server boots from the disk of the flavor.
	RootVolume *RootVolume `json:"rootVolume,omitempty"`
	// Volumes are attached to the server in this order, are empty at first, and are deleted with the machine. At most
	// 16 are allowed.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are the network ports of the server, 1 to 8. The first one is the primary port. For each port, set either
	// network or existing. Required.
	Ports []Port `json:"ports"`
	// SecurityGroups are up to 32 security groups for all ports without their own securityGroups. Default: the security
	// group "default" of the project.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// ServerGroup is the server group that the server joins. Default: none.
	ServerGroup string `json:"serverGroup,omitempty"`
	// KeyPair is the name of an SSH key pair in Nova, for logging in to the server. It must belong to the OpenStack
	// user of the credentials. Default: none.
	KeyPair string `json:"keyPair,omitempty"`
	// ConfigDrive attaches a disk with the user data and the metadata. By default, the server can read the user data
	// and the metadata only over the network.
	ConfigDrive bool `json:"configDrive,omitempty"`
	// Metadata contains up to 40 metadata entries of the server. Machinist adds its own entries. All names together may
	// have at most 255 bytes. Names that begin with "machinist" are reserved.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Tags are added to the server. At most 40 tags are allowed. All tags together may have at most 255 bytes. Tags
	// that begin with "machinist" are reserved.
	Tags []string `json:"tags,omitempty"`
}

// Image selects an image. Set exactly one of ID, Name and Tags.
type Image struct {
	// ID is the UUID of the image.
	ID string `json:"id,omitempty"`
	// Name is the name of the image. If several active images have this name, the newest one is used.
	Name string `json:"name,omitempty"`
	// Tags are up to 32 image tags. The newest active image with all of these tags is used.
	Tags []string `json:"tags,omitempty"`
}

// RootVolume is the volume that a server boots from.
type RootVolume struct {
	// SizeGiB is the size of the volume in GiB, 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type, such as "ssd". By default, Cinder chooses the type.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is the availability zone of the volume in Cinder. By default, Cinder chooses the zone.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Volume is an additional empty volume.
type Volume struct {
	// Name is the unique name of the volume in the machine. It is a DNS label of at most 16 characters, but not "root".
	// Required.
	Name string `json:"name"`
	// SizeGiB is the size of the volume in GiB, 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type. By default, Cinder chooses the type.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is the availability zone of the volume in Cinder. By default, Cinder chooses the zone.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Port is a network port of the server. Set exactly one of Network and Existing.
type Port struct {
	// Network is the network of the port. The port is created and deleted with the machine.
	Network string `json:"network,omitempty"`
	// Existing is an existing port, which is not deleted with the machine. Use it for a single machine with a fixed
	// address. It cannot be combined with the other fields of the port.
	Existing string `json:"existing,omitempty"`
	// FixedAddresses are up to 4 subnets or addresses of the port. By default, Neutron chooses one address.
	FixedAddresses []FixedAddress `json:"fixedAddresses,omitempty"`
	// SecurityGroups are the security groups of the port, 1 to 32. Default: the top-level securityGroups of the
	// providerSpec.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// AllowedAddressPairs are up to 32 additional addresses from which the port may send packets, such as pod networks.
	// Many clouds allow only 10.
	AllowedAddressPairs []AddressPair `json:"allowedAddressPairs,omitempty"`
	// PortSecurity specifies whether Neutron filters the traffic of the port. With false, the port has no security
	// groups and no allowed address pairs. Default: the setting of the network.
	PortSecurity *bool `json:"portSecurity,omitempty"`
	// VNICType is the type of the network interface: normal, direct, macvtap, direct-physical or virtio-forwarder.
	// Default: normal.
	VNICType string `json:"vnicType,omitempty"`
	// Trunk creates a trunk with this port as its parent, so that other systems can add subports. The trunk is deleted
	// with the machine.
	Trunk bool `json:"trunk,omitempty"`
}

// FixedAddress is a fixed address of a port. Set Subnet, Address or both.
type FixedAddress struct {
	// Subnet is the subnet that contains the address.
	Subnet string `json:"subnet,omitempty"`
	// Address is the IP address, such as "10.0.0.5". Use it only for a deployment with a single machine. By default,
	// Neutron chooses an address in the subnet.
	Address string `json:"address,omitempty"`
}

// AddressPair is an address from which a port may send packets.
type AddressPair struct {
	// Address is an IP address, or a network such as "10.244.0.0/16". Required.
	Address string `json:"address"`
	// MACAddress is the hardware address. Default: the hardware address of the port.
	MACAddress string `json:"macAddress,omitempty"`
}

// RootVolumeName identifies the root volume. No entry of Spec.Volumes may have this name.
const RootVolumeName = "root"

// ParseSpec parses and validates a providerSpec. Errors have the code InvalidArgument and name the invalid field.
func ParseSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := provider.DecodeSpec(raw, APIVersion, Kind, &s); err != nil {
		return Spec{}, err
	}
	if err := s.validate(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// GroupsOf returns the sorted security groups of a port. For an existing port, or a port without port security, the
// result is empty.
func (s *Spec) GroupsOf(p Port) []string {
	if p.Existing != "" || p.unfiltered() {
		return nil
	}
	groups := p.SecurityGroups
	if groups == nil {
		groups = s.SecurityGroups
	}
	return slices.Compact(slices.Sorted(slices.Values(groups)))
}

// SortedTags returns the sorted tags without duplicates.
func (s *Spec) SortedTags() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Tags)))
}

// MetadataNames returns the sorted names of the metadata, separated by commas.
func (s *Spec) MetadataNames() string {
	return strings.Join(slices.Sorted(maps.Keys(s.Metadata)), ",")
}
