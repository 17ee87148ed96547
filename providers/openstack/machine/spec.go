// Package machine defines the providerSpec of the OpenStack provider and validates it. It does not call OpenStack.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// API version and kind of a providerSpec.
const (
	APIVersion = "openstack.machinist.dev/v1beta1"
	Kind       = "OpenStackMachine"
)

// Spec is the providerSpec of the OpenStack provider. A field that refers to an object in OpenStack contains its name
// or ID. If a name is not unique, the creation of the machine is refused. The comments of the fields are the user
// documentation: hack/reference writes docs/reference/provider-specs.md from them. They name other fields as users
// write them.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Region is the region in which all parts of a machine are created. Default: the region of the credentials.
	Region string `json:"region,omitempty"`
	// AvailabilityZone is Nova's availability zone, such as "az-1". By default Nova chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// Flavor is the size of the server, such as "m1.small". Required.
	Flavor string `json:"flavor"`
	// Image is the image that the server boots: exactly one of id, name and tags. Required.
	Image Image `json:"image"`
	// RootVolume is a volume that is created from the image and deleted with the machine. By default the server boots
	// from the flavor's own disk.
	RootVolume *RootVolume `json:"rootVolume,omitempty"`
	// Volumes are empty volumes that are attached in this order and deleted with the machine; at most 16.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are the server's ports, 1 to 8. The first one is the primary port. Each has exactly one of network and
	// existing. Required.
	Ports []Port `json:"ports"`
	// SecurityGroups are the security groups of ports that do not name their own, up to 32. Default: the project's group
	// "default".
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// ServerGroup is the server group that the server joins. Default: none.
	ServerGroup string `json:"serverGroup,omitempty"`
	// KeyPair is the name of the key pair whose public key may log in. It belongs to the user of the credentials. Default:
	// none.
	KeyPair string `json:"keyPair,omitempty"`
	// ConfigDrive also provides user data and metadata on a disk. By default they are only available through the
	// network.
	ConfigDrive bool `json:"configDrive,omitempty"`
	// Metadata are metadata of the server in addition to Machinist's; at most 40. The names have at most 255 bytes in
	// total. Names that begin with "machinist" are reserved.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Tags are tags of the server; at most 40, with at most 255 bytes in total. Tags that begin with "machinist" are
	// reserved.
	Tags []string `json:"tags,omitempty"`
}

// Image selects an image. It has exactly one of ID, Name and Tags.
type Image struct {
	// ID is the UUID of the image.
	ID string `json:"id,omitempty"`
	// Name is the name of the image. If several active images have this name, the newest one is used.
	Name string `json:"name,omitempty"`
	// Tags are tags of the image, up to 32. The newest active image with all of these tags is used.
	Tags []string `json:"tags,omitempty"`
}

// RootVolume is the volume from which a server boots.
type RootVolume struct {
	// SizeGiB is 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type, such as "ssd". By default Cinder chooses one.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is Cinder's availability zone. By default Cinder chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Volume is an additional volume, which is created empty.
type Volume struct {
	// Name is unique among the machine's volumes: a DNS label of at most 16 characters, but not "root". Required.
	Name string `json:"name"`
	// SizeGiB is 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type. By default Cinder chooses one.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is Cinder's availability zone. By default Cinder chooses one.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Port is a port of the server. It has exactly one of Network and Existing.
type Port struct {
	// Network is the network in which the port is created. The port is deleted with the machine.
	Network string `json:"network,omitempty"`
	// Existing is an existing port, which is not deleted with the machine. It is for deployments with one machine and a
	// fixed address. It excludes all other fields.
	Existing string `json:"existing,omitempty"`
	// FixedAddresses are the subnets and addresses of the port; at most 4. By default Neutron chooses one address.
	FixedAddresses []FixedAddress `json:"fixedAddresses,omitempty"`
	// SecurityGroups are the security groups of the port, up to 32. An empty list is refused. Default: the securityGroups
	// of the providerSpec.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// AllowedAddressPairs are further addresses from which the port may send, such as those of pods; at most 32, and in
	// many clouds at most 10.
	AllowedAddressPairs []AddressPair `json:"allowedAddressPairs,omitempty"`
	// PortSecurity specifies whether Neutron filters the port's traffic. If it is false, the port has neither security
	// groups nor allowed address pairs. Default: the setting of the network.
	PortSecurity *bool `json:"portSecurity,omitempty"`
	// VNICType is the type of the network interface: normal, direct, macvtap, direct-physical or virtio-forwarder.
	// Default: normal.
	VNICType string `json:"vnicType,omitempty"`
	// Trunk makes the port the parent of a trunk, to which other systems add subports. The trunk is deleted with the
	// machine.
	Trunk bool `json:"trunk,omitempty"`
}

// FixedAddress is a fixed address of a port. It has Subnet, Address or both.
type FixedAddress struct {
	// Subnet is the subnet of the address.
	Subnet string `json:"subnet,omitempty"`
	// Address is an address such as "10.0.0.5", for deployments with one machine. By default Neutron chooses an address
	// in the subnet.
	Address string `json:"address,omitempty"`
}

// AddressPair is an address from which a port may send.
type AddressPair struct {
	// Address is an address or a network such as "10.244.0.0/16". Required.
	Address string `json:"address"`
	// MACAddress is the hardware address. Default: that of the port.
	MACAddress string `json:"macAddress,omitempty"`
}

// RootVolumeName is the name of the root volume among the names of Spec.Volumes.
const RootVolumeName = "root"

// ParseSpec reads a providerSpec and validates it. The error is an InvalidArgument with the field.
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

// GroupsOf returns the security groups of a port, sorted and without repetitions. It returns none for an existing
// port, and for a port without port security.
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

// SortedTags returns the tags, sorted and without repetitions.
func (s *Spec) SortedTags() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Tags)))
}

// MetadataNames returns the names of the metadata, sorted and joined by commas.
func (s *Spec) MetadataNames() string {
	return strings.Join(slices.Sorted(maps.Keys(s.Metadata)), ",")
}
