// Package machine defines the providerSpec of the OpenStack provider and validates it. It does not call OpenStack.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// The apiVersion and kind of the providerSpec.
const (
	APIVersion = "openstack.machinist.dev/v1beta1"
	Kind       = "OpenStackMachine"
)

// Spec is the providerSpec of the OpenStack provider. Fields that refer to objects in OpenStack contain the name or the
// ID of the object. If several objects have the name, the provider refuses to create the machine. The comments of the
// fields are user documentation, from which hack/reference generates docs/reference/provider-specs.md. Therefore, the
// comments use the JSON names of other fields.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Region is the region in which the provider creates all parts of a machine. Default: the region in the credentials.
	Region string `json:"region,omitempty"`
	// AvailabilityZone is the availability zone of the server in Nova, such as "az-1". By default, Nova chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// Flavor is the flavor of the server, such as "m1.small". Required.
	Flavor string `json:"flavor"`
	// Image is the image from which the server boots. Set exactly one of id, name and tags. Required.
	Image Image `json:"image"`
	// RootVolume is a volume that the provider creates from the image. It is deleted together with the machine. By
	// default, the server boots from the disk of the flavor.
	RootVolume *RootVolume `json:"rootVolume,omitempty"`
	// Volumes are at most 16 empty volumes, which are attached in this order and deleted together with the machine.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are the network ports of the server, 1 to 8. The first one is the primary port. In each port, set either
	// network or existing. Required.
	Ports []Port `json:"ports"`
	// SecurityGroups are at most 32 security groups. They apply to all ports that have no securityGroups of their own.
	// Default: the security group "default" of the project.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// ServerGroup is the server group that the server joins. Default: none.
	ServerGroup string `json:"serverGroup,omitempty"`
	// KeyPair is the name of an SSH key pair in Nova. Its public key allows a user to log in to the server. The key pair
	// must belong to the OpenStack user of the credentials. Default: none.
	KeyPair string `json:"keyPair,omitempty"`
	// ConfigDrive attaches a disk that contains the user data and the metadata. By default, the server gets the user data
	// and the metadata only over the network.
	ConfigDrive bool `json:"configDrive,omitempty"`
	// Metadata contains at most 40 metadata entries of the server, in addition to the entries that Machinist sets. All
	// names together may have at most 255 bytes. Names that begin with "machinist" are reserved.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Tags are at most 40 tags of the server. All tags together may have at most 255 bytes. Tags that begin with
	// "machinist" are reserved.
	Tags []string `json:"tags,omitempty"`
}

// Image selects an image. Exactly one of ID, Name and Tags must be set.
type Image struct {
	// ID is the UUID of the image.
	ID string `json:"id,omitempty"`
	// Name is the name of the image. If several active images have this name, the newest one is used.
	Name string `json:"name,omitempty"`
	// Tags are at most 32 tags. The newest active image that has all of these tags is used.
	Tags []string `json:"tags,omitempty"`
}

// RootVolume is the volume from which a server boots.
type RootVolume struct {
	// SizeGiB is the size of the volume in GiB, 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type, such as "ssd". By default, Cinder chooses one.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is the availability zone of the volume in Cinder. By default, Cinder chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Volume is an additional volume. It is initially empty.
type Volume struct {
	// Name is the name of the volume. It must be unique among the volumes of the machine. It is a DNS label of at most 16
	// characters, but not "root". Required.
	Name string `json:"name"`
	// SizeGiB is the size of the volume in GiB, 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type. By default, Cinder chooses one.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is the availability zone of the volume in Cinder. By default, Cinder chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Port is a network port of the server. Exactly one of Network and Existing must be set.
type Port struct {
	// Network is the network in which the provider creates the port. The port is deleted together with the machine.
	Network string `json:"network,omitempty"`
	// Existing is a port that already exists and is not deleted together with the machine. Use it for a deployment that
	// has only one machine, with a fixed address. It cannot be combined with the other fields of the port.
	Existing string `json:"existing,omitempty"`
	// FixedAddresses are at most 4 subnets or addresses of the port. By default, Neutron chooses one address.
	FixedAddresses []FixedAddress `json:"fixedAddresses,omitempty"`
	// SecurityGroups are the security groups of the port, 1 to 32. Default: the top-level securityGroups of the
	// providerSpec.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// AllowedAddressPairs are at most 32 further addresses from which the port may send packets, such as the addresses of
	// pods. Many clouds allow only 10.
	AllowedAddressPairs []AddressPair `json:"allowedAddressPairs,omitempty"`
	// PortSecurity specifies whether Neutron filters the traffic of the port. If portSecurity is false, the port has
	// neither security groups nor allowed address pairs. Default: the setting of the network.
	PortSecurity *bool `json:"portSecurity,omitempty"`
	// VNICType is the type of the network interface: normal, direct, macvtap, direct-physical or virtio-forwarder.
	// Default: normal.
	VNICType string `json:"vnicType,omitempty"`
	// Trunk specifies whether the provider creates a trunk with this port as its parent. Other systems can add subports to
	// the trunk. The trunk is deleted together with the machine.
	Trunk bool `json:"trunk,omitempty"`
}

// FixedAddress is a fixed address of a port. At least one of Subnet and Address must be set.
type FixedAddress struct {
	// Subnet is the subnet that contains the address.
	Subnet string `json:"subnet,omitempty"`
	// Address is the IP address, such as "10.0.0.5". Use it only for a deployment that has only one machine. By default,
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

// RootVolumeName is the name that identifies the root volume. No entry of Spec.Volumes may have this name.
const RootVolumeName = "root"

// ParseSpec parses and validates a providerSpec. The errors have the code InvalidArgument and name the invalid field.
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

// GroupsOf returns the security groups of a port, sorted and without duplicates. It returns no groups for an existing
// port, or for a port without port security.
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

// SortedTags returns the tags, sorted and without duplicates.
func (s *Spec) SortedTags() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Tags)))
}

// MetadataNames returns the sorted names of the metadata, separated by commas.
func (s *Spec) MetadataNames() string {
	return strings.Join(slices.Sorted(maps.Keys(s.Metadata)), ",")
}
