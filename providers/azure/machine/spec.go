// Package machine contains the providerSpec of the Azure provider and its validation. Of Azure's SDK, it uses only the
// parser for resource IDs.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// These are the apiVersion and kind of the providerSpec.
const (
	APIVersion = "azure.machinist.dev/v1beta1"
	Kind       = "AzureMachine"
)

// Spec is the providerSpec of the Azure provider. hack/reference generates docs/reference/provider-specs.md from the
// comments of its fields. So these comments use the JSON names of fields. A field whose name ends with ID or IDs
// contains complete resource IDs ("/subscriptions/…"), unless its comment names another format.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Location is the region, such as "westeurope". Required.
	Location string `json:"location"`
	// ResourceGroup is an existing resource group. The provider creates all resources of a machine there. Required.
	ResourceGroup string `json:"resourceGroup"`
	// VMSize is the size of the virtual machine, such as "Standard_D4s_v5". Required.
	VMSize string `json:"vmSize"`
	// Image is the image that the machine boots. Set exactly one of marketplace, galleryImageID,
	// communityGalleryImageID and sharedGalleryImageID. Required.
	Image Image `json:"image"`
	// OSDisk is the disk that the machine boots from. By default, the image determines its properties.
	OSDisk OSDisk `json:"osDisk,omitzero"`
	// DataDisks are up to 64 empty disks. They are created and deleted with the machine.
	DataDisks []DataDisk `json:"dataDisks,omitempty"`
	// NetworkInterfaces are the network interfaces of the machine, 1 to 8. The first one is the primary interface.
	// Required.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces"`

	// Zone is the availability zone, such as "1". By default, the machine has no zone.
	Zone string `json:"zone,omitempty"`
	// AvailabilitySetID is the availability set that the machine joins. It cannot be combined with zone or scaleSetID.
	AvailabilitySetID string `json:"availabilitySetID,omitempty"`
	// ScaleSetID is the scale set that the machine joins. The orchestration mode of the scale set must be Flexible.
	ScaleSetID string `json:"scaleSetID,omitempty"`
	// FaultDomain is the fault domain in the scale set. It requires scaleSetID. By default, Azure chooses the fault
	// domain.
	FaultDomain *int32 `json:"faultDomain,omitempty"`
	// CapacityReservationGroupID is the capacity reservation group of the machine.
	CapacityReservationGroupID string `json:"capacityReservationGroupID,omitempty"`
	// Spot requests a spot machine. Spot machines are cheaper, but Azure may evict them at any time. By default, the
	// machine is a regular machine.
	Spot *Spot `json:"spot,omitempty"`

	// Identity contains the managed identities that programs on the machine can use to authenticate to Azure. By
	// default, the machine has no identity.
	Identity Identity `json:"identity,omitzero"`
	// Tags are added to the machine and to its disks, network interfaces and addresses. At most 40 tags are allowed.
	// Machinist adds its own tags. Names that begin with "machinist" are reserved.
	Tags map[string]string `json:"tags,omitempty"`
	// AdminUsername is the user who may log in to the machine. Default: "machinist".
	AdminUsername string `json:"adminUsername,omitempty"`
	// SSHPublicKey is the public SSH key of the admin user in OpenSSH format, of the type ssh-rsa or ssh-ed25519. Azure
	// requires a key for Linux machines. Required.
	SSHPublicKey string `json:"sshPublicKey"`
	// EncryptionAtHost also encrypts the temporary disk and the disk caches. The subscription must be registered for
	// this feature.
	EncryptionAtHost bool `json:"encryptionAtHost,omitempty"`
	// BootDiagnostics stores the output of the serial console. By default, the output is not stored.
	BootDiagnostics *BootDiagnostics `json:"bootDiagnostics,omitempty"`

	// Resize specifies how to apply a change of vmSize. With Never, the machine is replaced. With Deallocate, the node
	// is drained, and the machine is deallocated, resized and started again. Default: Never.
	Resize Resize `json:"resize,omitempty"`
}

// Image selects the image of a machine. Set exactly one of Marketplace and the three image IDs.
type Image struct {
	// Marketplace is an image of Azure Marketplace.
	Marketplace *MarketplaceImage `json:"marketplace,omitempty"`
	// GalleryImageID is the ID of a managed image, or of an image in a compute gallery, with or without a version. If
	// the ID contains no version, each new machine boots the latest version of the image.
	GalleryImageID string `json:"galleryImageID,omitempty"`
	// CommunityGalleryImageID is an image of a community gallery, in the format
	// "/CommunityGalleries/{name}/Images/{image}/Versions/{version}".
	CommunityGalleryImageID string `json:"communityGalleryImageID,omitempty"`
	// SharedGalleryImageID is an image of a shared gallery, in the format
	// "/SharedGalleries/{name}/Images/{image}/Versions/{version}".
	SharedGalleryImageID string `json:"sharedGalleryImageID,omitempty"`
	// Plan is the purchase plan of the image. Set Plan if the publisher of the image requires a plan, even if the image
	// is in a gallery.
	Plan *Plan `json:"plan,omitempty"`
}

// MarketplaceImage identifies an image of Azure Marketplace.
type MarketplaceImage struct {
	// Publisher is the publisher of the image, such as "Canonical". Required.
	Publisher string `json:"publisher"`
	// Offer is the offer of the publisher, such as "0001-com-ubuntu-server-jammy". Required.
	Offer string `json:"offer"`
	// SKU is the SKU of the offer, such as "22_04-lts-gen2". Required.
	SKU string `json:"sku"`
	// Version is the version of the image, such as "22.04.202506100". With "latest", each new machine boots the newest
	// version. Required.
	Version string `json:"version"`
}

// Plan is a purchase plan of Azure Marketplace. The terms of a plan must be accepted once for each subscription.
type Plan struct {
	// Name is the name of the plan, such as "stable-gen2". Required.
	Name string `json:"name"`
	// Product is the product of the plan, such as "flatcar-container-linux". Required.
	Product string `json:"product"`
	// Publisher is the publisher of the product, such as "kinvolk". Required.
	Publisher string `json:"publisher"`
	// AcceptTerms allows the provider to accept the terms of the plan for the subscription. By default, no machine is
	// created until a user has accepted the terms.
	AcceptTerms bool `json:"acceptTerms,omitempty"`
}

// OSDisk is the disk from which a machine boots.
type OSDisk struct {
	// SizeGiB is the size of the disk in GiB, 1 to 4095. Default: the size of the image.
	SizeGiB int32 `json:"sizeGiB,omitempty"`
	// StorageAccountType is the type of the disk: Standard_LRS, StandardSSD_LRS, StandardSSD_ZRS, Premium_LRS or
	// Premium_ZRS. By default, Azure chooses a type that suits the VM size.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is the disk caching: None, ReadOnly or ReadWrite. By default, Azure chooses the caching.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the disk encryption set with the encryption key of the disk. By default, Azure manages the
	// key.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
	// Ephemeral stores the disk on the host of the machine. Such a disk is fast and free of charge. Its data is lost
	// when Azure deallocates the machine or moves it to another host.
	Ephemeral *Ephemeral `json:"ephemeral,omitempty"`
}

// Ephemeral specifies where the host stores an ephemeral disk.
type Ephemeral struct {
	// Placement is where the host stores the ephemeral disk: CacheDisk, ResourceDisk or NvmeDisk. By default, Azure
	// chooses a placement that suits the VM size.
	Placement string `json:"placement,omitempty"`
}

// DataDisk is an additional disk.
type DataDisk struct {
	// LUN is the unique number of the disk in the machine, 0 to 63. Required.
	LUN *int32 `json:"lun"`
	// SizeGiB is the size of the disk in GiB, 1 to 65536. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// StorageAccountType is a type that osDisk.storageAccountType allows, or PremiumV2_LRS or UltraSSD_LRS. By default,
	// Azure chooses a type.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is the disk caching: None, ReadOnly or ReadWrite. By default, Azure chooses the caching.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the disk encryption set with the encryption key of the disk. By default, Azure manages the
	// key.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
}

// NetworkInterface is a network interface with one IPv4 address.
type NetworkInterface struct {
	// SubnetID is the subnet of the interface. Required.
	SubnetID string `json:"subnetID"`
	// PublicIP gives the interface its own static public IP address of the SKU Standard.
	PublicIP bool `json:"publicIP,omitempty"`
	// AcceleratedNetworking enables accelerated networking. Not all VM sizes support this.
	AcceleratedNetworking bool `json:"acceleratedNetworking,omitempty"`
	// IPForwarding allows the interface to receive and send traffic for other IP addresses. Some network plugins
	// require this.
	IPForwarding bool `json:"ipForwarding,omitempty"`
	// SecurityGroupID is a network security group of the interface. The security group of the subnet also applies.
	SecurityGroupID string `json:"securityGroupID,omitempty"`
	// ApplicationSecurityGroupIDs are the application security groups of the interface.
	ApplicationSecurityGroupIDs []string `json:"applicationSecurityGroupIDs,omitempty"`
	// LoadBalancerBackendPoolIDs are the backend address pools of load balancers that contain the interface.
	LoadBalancerBackendPoolIDs []string `json:"loadBalancerBackendPoolIDs,omitempty"`
}

// Spot contains the settings of a spot machine.
type Spot struct {
	// MaxPrice is the maximum price in US dollars per hour. The default is -1, which means the price of a regular
	// machine.
	MaxPrice *float64 `json:"maxPrice,omitempty"`
	// EvictionPolicy is what happens to an evicted machine: Delete or Deallocate. By default, Azure deletes the
	// machine, and Machinist replaces it.
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
}

// Identity contains the managed identities of a machine.
type Identity struct {
	// SystemAssigned gives the machine a system-assigned identity.
	SystemAssigned bool `json:"systemAssigned,omitempty"`
	// UserAssignedIDs are the user-assigned identities of the machine.
	UserAssignedIDs []string `json:"userAssignedIDs,omitempty"`
}

// BootDiagnostics specifies where Azure stores the output of the serial console.
type BootDiagnostics struct {
	// StorageURI is the blob endpoint of the storage account for the output. By default, Azure manages the storage.
	StorageURI string `json:"storageURI,omitempty"`
}

// Resize specifies how the provider changes the size of a machine.
type Resize string

const (
	// ResizeNever never resizes a machine. When the size changes, the Machine is replaced.
	ResizeNever Resize = "Never"
	// ResizeDeallocate drains the node, and deallocates, resizes and starts the machine.
	ResizeDeallocate Resize = "Deallocate"
)

const defaultAdmin = "machinist"

// ParseSpec parses and validates a providerSpec, and sets defaults. Errors have the code InvalidArgument and name the
// invalid field.
func ParseSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := provider.DecodeSpec(raw, APIVersion, Kind, &s); err != nil {
		return Spec{}, err
	}
	if err := s.validate(); err != nil {
		return Spec{}, err
	}
	if s.AdminUsername == "" {
		s.AdminUsername = defaultAdmin
	}
	if s.Resize == "" {
		s.Resize = ResizeNever
	}
	if s.Spot != nil && s.Spot.EvictionPolicy == "" {
		s.Spot.EvictionPolicy = "Delete"
	}
	return s, nil
}

// TagNames returns the sorted names of the tags, separated by commas.
func (s *Spec) TagNames() string { return strings.Join(slices.Sorted(maps.Keys(s.Tags)), ",") }
