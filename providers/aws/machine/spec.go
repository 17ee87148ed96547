// Package machine contains the providerSpec of the AWS provider and its validation. The package does not import the
// SDK of AWS.
package machine

import "machinist.dev/machinist/pkg/provider"

// These are the apiVersion and kind of the providerSpec.
const (
	APIVersion = "aws.machinist.dev/v1beta1"
	Kind       = "AWSMachine"
)

// Spec is the providerSpec of the AWS provider. The fields have the names of EC2's parameters.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Region is the region, such as "eu-west-1". Required.
	Region string `json:"region"`
	// InstanceType is the instance type, such as "m6i.large". Required.
	InstanceType string `json:"instanceType"`
	// ImageID is the AMI that the instance boots, such as "ami-0123456789abcdef0". Required.
	ImageID string `json:"imageID"`
	// Subnet is the subnet of the primary network interface. It determines the zone. Required.
	Subnet Reference `json:"subnet"`
	// SecurityGroups are the 1 to 5 security groups of the primary network interface. Required.
	SecurityGroups []Reference `json:"securityGroups"`
	// NetworkInterfaces are up to 14 network interfaces in addition to the primary one. They are created and deleted
	// with the instance.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`

	// IAMInstanceProfile is the name or the ARN of the instance profile. By default, programs on the instance have no
	// role.
	IAMInstanceProfile string `json:"iamInstanceProfile,omitempty"`
	// KeyName is the key pair for SSH. By default, the instance has no key.
	KeyName string `json:"keyName,omitempty"`
	// Tags are added to the instance and to its volumes and network interfaces. At most 40 tags are allowed. Machinist
	// adds its own tags. Names that begin with "machinist-" or "aws:" are reserved.
	Tags map[string]string `json:"tags,omitempty"`

	// RootVolume is the volume that the instance boots from. By default, the image determines its size, and the volume
	// is encrypted and has the type gp3.
	RootVolume Volume `json:"rootVolume,omitzero"`
	// DataVolumes are up to 26 empty volumes. They are created and deleted with the instance.
	DataVolumes []DataVolume `json:"dataVolumes,omitempty"`

	// AssociatePublicIPAddress specifies whether the instance gets a public IPv4 address. The address changes when the
	// instance is stopped and started. By default, the subnet decides. It cannot be set with networkInterfaces.
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// IPv6AddressCount is the number of IPv6 addresses of the primary network interface. Default: 0.
	IPv6AddressCount int32 `json:"ipv6AddressCount,omitempty"`
	// IPv4PrefixCount is the number of IPv4 prefixes (/28) of the primary network interface. Default: 0.
	IPv4PrefixCount int32 `json:"ipv4PrefixCount,omitempty"`
	// IPv6PrefixCount is the number of IPv6 prefixes (/80) of the primary network interface. It cannot be combined with
	// ipv6AddressCount. Default: 0.
	IPv6PrefixCount int32 `json:"ipv6PrefixCount,omitempty"`
	// SourceDestCheck is false if the instance may receive and send traffic for other addresses. Some network plugins
	// require this. Default: true.
	SourceDestCheck *bool `json:"sourceDestCheck,omitempty"`
	// HostnameType is the form of the private DNS name: ip-name or resource-name. It also determines the name of the
	// Node: the private DNS name with ip-name, and the ID of the instance with resource-name. Default: ip-name.
	HostnameType HostnameType `json:"hostnameType,omitempty"`
	// MetadataOptions configure the instance metadata service.
	MetadataOptions MetadataOptions `json:"metadataOptions,omitzero"`

	// Placement selects the hardware.
	Placement Placement `json:"placement,omitzero"`
	// CapacityReservation selects the capacity reservation of the instance. By default, the instance uses any open
	// reservation with matching attributes.
	CapacityReservation CapacityReservation `json:"capacityReservation,omitzero"`
	// CPUOptions change the number of CPU cores and threads. By default, the instance type determines them.
	CPUOptions *CPUOptions `json:"cpuOptions,omitempty"`
	// Spot requests a Spot instance. Spot instances are cheaper, but AWS may interrupt them at any time. By default,
	// the instance is an On-Demand instance.
	Spot *Spot `json:"spot,omitempty"`

	// CompressUserData compresses the user data with gzip, so that more than 16 KiB fit. Cloud-init can read such data.
	// Default: false.
	CompressUserData bool `json:"compressUserData,omitempty"`
	// Resize specifies how to apply a change of instanceType. With Never, the machine is replaced. With StopAndStart,
	// the node is drained, and the instance is stopped, changed and started again. Default: Never.
	Resize Resize `json:"resize,omitempty"`
	// MaxPods is the number of pods for which the kubelet is configured, 1 to 1024. The autoscaler uses this number.
	// Default: 110.
	MaxPods int32 `json:"maxPods,omitempty"`
}

// Reference selects a subnet or a security group. Set exactly one of ID and Tags.
type Reference struct {
	// ID is the ID, such as "subnet-0123456789abcdef0" or "sg-0123456789abcdef0".
	ID string `json:"id,omitempty"`
	// Tags are tags that exactly one subnet or security group in the region has.
	Tags map[string]string `json:"tags,omitempty"`
}

// NetworkInterface is a network interface in addition to the primary one.
type NetworkInterface struct {
	// Subnet is the subnet of the interface. It must be in the zone of the primary interface. Required.
	Subnet Reference `json:"subnet"`
	// SecurityGroups are the 1 to 5 security groups of the interface. Default: those of the primary interface.
	SecurityGroups []Reference `json:"securityGroups,omitempty"`
}

// Volume contains the properties of an EBS volume.
type Volume struct {
	// SizeGiB is the size in GiB, 1 to 65536. For the root volume, the default is the size of the image. Required for
	// data volumes.
	SizeGiB int32 `json:"sizeGiB,omitempty"`
	// VolumeType is the type of the volume: gp2, gp3, io1, io2, st1, sc1 or standard. Default: gp3.
	VolumeType string `json:"volumeType,omitempty"`
	// IOPS is the number of I/O operations per second, 100 to 256000. It is required for io1 and io2, and allowed for
	// gp3. Default for gp3: 3000.
	IOPS int32 `json:"iops,omitempty"`
	// Throughput is the throughput of a gp3 volume in MiB/s, 125 to 2000. Default: 125.
	Throughput int32 `json:"throughput,omitempty"`
	// Encrypted is false if the volume is not encrypted. Default: true.
	Encrypted *bool `json:"encrypted,omitempty"`
	// KMSKeyID is the ID, the alias ("alias/…") or the ARN of the KMS key. Default: the default key of the account.
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// DataVolume is a volume in addition to the root volume.
type DataVolume struct {
	// DeviceName is the name of the device, such as "/dev/sdf". Required.
	DeviceName string `json:"deviceName"`
	Volume     `json:",inline"`
}

// HostnameType is the form of the private DNS name.
type HostnameType string

const (
	// HostnameIPName is a name that contains the private IPv4 address.
	HostnameIPName HostnameType = "ip-name"
	// HostnameResourceName is a name that contains the ID of the instance.
	HostnameResourceName HostnameType = "resource-name"
)

// MetadataOptions configure the instance metadata service (IMDS).
type MetadataOptions struct {
	// HTTPTokens is required if IMDS accepts only requests with a session token (IMDSv2), or optional. Default:
	// required.
	HTTPTokens string `json:"httpTokens,omitempty"`
	// HTTPPutResponseHopLimit is the number of network hops that a session token can travel, 1 to 64. With 1, pods
	// without the network of the host cannot use IMDS. Default: 1.
	HTTPPutResponseHopLimit int32 `json:"httpPutResponseHopLimit,omitempty"`
	// HTTPEndpoint is enabled or disabled. Default: enabled.
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// InstanceMetadataTags is enabled if programs on the instance can read its tags, or disabled. Default: disabled.
	InstanceMetadataTags string `json:"instanceMetadataTags,omitempty"`
}

// Placement selects the hardware of an instance.
type Placement struct {
	// Tenancy is default, dedicated or host. Default: default.
	Tenancy string `json:"tenancy,omitempty"`
	// HostID is the Dedicated Host. It requires the tenancy host. By default, AWS chooses a host of the account.
	HostID string `json:"hostID,omitempty"`
	// GroupName is the placement group.
	GroupName string `json:"groupName,omitempty"`
	// PartitionNumber is the partition in a placement group, 1 to 7. By default, AWS chooses the partition.
	PartitionNumber int32 `json:"partitionNumber,omitempty"`
}

// CapacityReservation selects a capacity reservation. Set at most one of the fields.
type CapacityReservation struct {
	// ID is the ID of a reservation, such as "cr-0123456789abcdef0".
	ID string `json:"id,omitempty"`
	// ResourceGroupARN is the ARN of a resource group with reservations.
	ResourceGroupARN string `json:"resourceGroupARN,omitempty"`
	// Preference is open or none. With none, the instance uses no reservation.
	Preference string `json:"preference,omitempty"`
}

// CPUOptions are the CPU options of an instance.
type CPUOptions struct {
	// CoreCount is the number of CPU cores, 1 to 512. Required.
	CoreCount int32 `json:"coreCount"`
	// ThreadsPerCore is the number of threads of each core: 1 or 2. Required.
	ThreadsPerCore int32 `json:"threadsPerCore"`
}

// Spot contains the settings of a Spot instance. An interrupted instance is terminated, and Machinist replaces it.
type Spot struct {
	// MaxPrice is the maximum price in US dollars per hour, such as "0.0464". Default: the price of an On-Demand
	// instance.
	MaxPrice string `json:"maxPrice,omitempty"`
}

// Resize specifies how the provider changes the instance type.
type Resize string

const (
	// ResizeNever never changes the type of an instance. When the type changes, the Machine is replaced.
	ResizeNever Resize = "Never"
	// ResizeStopAndStart drains the node, and stops, changes and starts the instance.
	ResizeStopAndStart Resize = "StopAndStart"
)

// defaultMaxPods is the default of the kubelet.
const defaultMaxPods = 110

// ParseSpec parses and validates a providerSpec, and sets defaults. Errors have the code InvalidArgument and name
// the invalid field.
func ParseSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := provider.DecodeSpec(raw, APIVersion, Kind, &s); err != nil {
		return Spec{}, err
	}
	if err := s.validate(); err != nil {
		return Spec{}, err
	}
	s.setDefaults()
	return s, nil
}

func (s *Spec) setDefaults() {
	orDefault(&s.HostnameType, HostnameIPName)
	orDefault(&s.MetadataOptions.HTTPTokens, "required")
	orDefault(&s.MetadataOptions.HTTPEndpoint, "enabled")
	orDefault(&s.MetadataOptions.InstanceMetadataTags, "disabled")
	orDefault(&s.MetadataOptions.HTTPPutResponseHopLimit, 1)
	orDefault(&s.Placement.Tenancy, "default")
	orDefault(&s.Resize, ResizeNever)
	orDefault(&s.MaxPods, defaultMaxPods)
	s.RootVolume.setDefaults()
	for i := range s.DataVolumes {
		s.DataVolumes[i].setDefaults()
	}
	yes := true
	if s.SourceDestCheck == nil {
		s.SourceDestCheck = &yes
	}
}

func (v *Volume) setDefaults() {
	orDefault(&v.VolumeType, "gp3")
	yes := true
	if v.Encrypted == nil {
		v.Encrypted = &yes
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
