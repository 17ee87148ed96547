// Package machine is the providerSpec of the OpenStack provider: its fields, and which values are refused with the
// field that is wrong. It makes no call.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// The API version and kind of a providerSpec.
const (
	APIVersion = "openstack.machinist.dev/v1beta1"
	Kind       = "OpenStackMachine"
)

// Spec is the providerSpec of this provider. Where a field names something of OpenStack's, it takes the name or the ID.
// A name that more than one has is refused when the machine is made.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Region is where everything of a machine is made. By default the region of the credentials.
	Region string `json:"region,omitempty"`
	// AvailabilityZone is Nova's, such as "az-1". By default Nova chooses.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	// Flavor is the size of the server. Required.
	Flavor string `json:"flavor"`
	// Image is what the server boots. Required.
	Image Image `json:"image"`
	// RootVolume makes the server boot from a volume that is made from the image and deleted with the machine. By default
	// the server boots from the flavor's own disk.
	RootVolume *RootVolume `json:"rootVolume,omitempty"`
	// Volumes are made empty, attached in this order and deleted with the machine; at most 16.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are the server's, the first one its primary; 1 to 8.
	Ports []Port `json:"ports"`
	// SecurityGroups are those of ports that name none of their own. By default a port has the project's group "default".
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// ServerGroup is the server group to join. By default the server joins none.
	ServerGroup string `json:"serverGroup,omitempty"`
	// KeyPair is the name of the key pair whose public key may log in. By default there is none.
	KeyPair string `json:"keyPair,omitempty"`
	// ConfigDrive gives the server its user data and metadata on a disk too. By default only through the network.
	ConfigDrive bool `json:"configDrive,omitempty"`
	// Metadata are put on the server, beside Machinist's; at most 40.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Tags are put on the server; at most 40.
	Tags []string `json:"tags,omitempty"`
}

// Image has exactly one of ID, Name and Tags.
type Image struct {
	// ID of the image.
	ID string `json:"id,omitempty"`
	// Name of the image. Of several with that name the newest active one is taken.
	Name string `json:"name,omitempty"`
	// Tags that an image must all have. The newest active one is taken.
	Tags []string `json:"tags,omitempty"`
}

// RootVolume is the volume that a server boots from.
type RootVolume struct {
	// SizeGiB is 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type. By default Cinder's.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is Cinder's. By default Cinder chooses.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Volume is one that is made empty.
type Volume struct {
	// Name tells the machine's volumes apart: a DNS label of at most 16 characters, "root" excepted. Required.
	Name string `json:"name"`
	// SizeGiB is 1 to 16384. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// Type is the volume type. By default Cinder's.
	Type string `json:"type,omitempty"`
	// AvailabilityZone is Cinder's. By default Cinder chooses.
	AvailabilityZone string `json:"availabilityZone,omitempty"`
}

// Port is a port of the server. It has exactly one of Network and Existing.
type Port struct {
	// Network is where the port is made. It is deleted with the machine.
	Network string `json:"network,omitempty"`
	// Existing is a port that is there, and stays when the machine goes: for a deployment of one machine with a fixed
	// address. It excludes all other fields.
	Existing string `json:"existing,omitempty"`
	// FixedAddresses are the subnets and addresses of the port; at most 4. By default Neutron chooses one.
	FixedAddresses []FixedAddress `json:"fixedAddresses,omitempty"`
	// SecurityGroups are the port's; an empty list is refused. By default the specification's SecurityGroups.
	SecurityGroups []string `json:"securityGroups,omitempty"`
	// AllowedAddressPairs are further addresses that the port may send from, such as those of pods; at most 32.
	AllowedAddressPairs []AddressPair `json:"allowedAddressPairs,omitempty"`
	// PortSecurity says whether Neutron filters the port's traffic. By default as the network says. Without it the port
	// has neither security groups nor allowed address pairs.
	PortSecurity *bool `json:"portSecurity,omitempty"`
	// VNICType is how the port is plugged: normal, direct, macvtap, direct-physical, virtio-forwarder. Default: normal.
	VNICType string `json:"vnicType,omitempty"`
	// Trunk makes the port the parent of a trunk, to which others add subports. The trunk is deleted with the machine.
	Trunk bool `json:"trunk,omitempty"`
}

// FixedAddress has Subnet, Address or both.
type FixedAddress struct {
	// Subnet is where the address comes from.
	Subnet string `json:"subnet,omitempty"`
	// Address is such as "10.0.0.5": for a deployment of one machine. By default Neutron chooses one of the subnet.
	Address string `json:"address,omitempty"`
}

// AddressPair is an address that a port may send from.
type AddressPair struct {
	// Address is an address or a network such as "10.244.0.0/16". Required.
	Address string `json:"address"`
	// MACAddress is the hardware address. By default the port's.
	MACAddress string `json:"macAddress,omitempty"`
}

// RootVolumeName is what the root volume is called beside Spec.Volumes.
const RootVolumeName = "root"

// ParseSpec reads a providerSpec and checks it. The error is an InvalidArgument that names the field.
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

// GroupsOf are the security groups of a port, in order of their names and without repetitions. A port that exists, or
// whose traffic is not filtered, is given none.
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

// SortedTags are the tags as a set.
func (s *Spec) SortedTags() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.Tags)))
}

// MetadataNames are the names of the metadata, sorted and joined by commas.
func (s *Spec) MetadataNames() string {
	return strings.Join(slices.Sorted(maps.Keys(s.Metadata)), ",")
}
