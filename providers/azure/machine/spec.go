// Package machine contains the providerSpec of the Azure provider and its validation. Of Azure's SDK it uses only the
// parser of resource IDs.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// These are the API version and kind of a providerSpec.
const (
	APIVersion = "azure.machinist.dev/v1beta1"
	Kind       = "AzureMachine"
)

// Spec is the providerSpec of this provider. The comments of its fields are the user documentation: hack/reference
// writes docs/reference/provider-specs.md from them. They name other fields as users write them. A field whose name
// ends with ID or IDs takes complete resource IDs ("/subscriptions/…"), unless its comment names another format.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Location is the region, such as "westeurope". Required.
	Location string `json:"location"`
	// ResourceGroup is the resource group in which the provider creates all resources of a machine. It must exist.
	// Required.
	ResourceGroup string `json:"resourceGroup"`
	// VMSize is the size, such as "Standard_D4s_v5". Required.
	VMSize string `json:"vmSize"`
	// Image is the image from which the machine boots: exactly one of marketplace and the three IDs. Required.
	Image Image `json:"image"`
	// OSDisk is the machine's first disk. By default it has the properties of the image.
	OSDisk OSDisk `json:"osDisk,omitzero"`
	// DataDisks are empty disks that are created and deleted with the machine, at most 64.
	DataDisks []DataDisk `json:"dataDisks,omitempty"`
	// NetworkInterfaces are the machine's network interfaces, the primary one first; 1 to 8. Required.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces"`

	// Zone is the availability zone, such as "1". By default the machine is in none.
	Zone string `json:"zone,omitempty"`
	// AvailabilitySetID is the availability set to join. It excludes zone and scaleSetID.
	AvailabilitySetID string `json:"availabilitySetID,omitempty"`
	// ScaleSetID is the scale set with flexible orchestration to join.
	ScaleSetID string `json:"scaleSetID,omitempty"`
	// FaultDomain is the fault domain of the scale set. It needs scaleSetID. Default: Azure's choice.
	FaultDomain *int32 `json:"faultDomain,omitempty"`
	// CapacityReservationGroupID is the group of capacity reservations from which to take the machine.
	CapacityReservationGroupID string `json:"capacityReservationGroupID,omitempty"`
	// Spot requests spare capacity, which Azure may take back. By default the machine is a regular one.
	Spot *Spot `json:"spot,omitempty"`

	// Identity contains the identities with which the machine can authenticate to Azure. By default it has none.
	Identity Identity `json:"identity,omitzero"`
	// Tags are tags for the machine, its disks, interfaces and addresses, in addition to Machinist's tags; at most 40.
	// Names that begin with "machinist" are reserved.
	Tags map[string]string `json:"tags,omitempty"`
	// AdminUsername is the user who may log in. Default: "machinist".
	AdminUsername string `json:"adminUsername,omitempty"`
	// SSHPublicKey is that user's key in OpenSSH format, of the type ssh-rsa or ssh-ed25519. Azure creates no Linux
	// machine without a key. Required.
	SSHPublicKey string `json:"sshPublicKey"`
	// EncryptionAtHost encrypts temporary disks and caches, too. The subscription must be registered for it.
	EncryptionAtHost bool `json:"encryptionAtHost,omitempty"`
	// BootDiagnostics keeps the output of the serial console. By default it is not kept.
	BootDiagnostics *BootDiagnostics `json:"bootDiagnostics,omitempty"`

	// Resize decides whether vmSize changes in place: Never or Deallocate. Default: Never.
	Resize Resize `json:"resize,omitempty"`
}

// Image contains exactly one of the three IDs and Marketplace.
type Image struct {
	// Marketplace is an image that a publisher offers.
	Marketplace *MarketplaceImage `json:"marketplace,omitempty"`
	// GalleryImageID is a managed image, or an image or image version in a compute gallery. Without a version, each new
	// machine gets the latest one.
	GalleryImageID string `json:"galleryImageID,omitempty"`
	// CommunityGalleryImageID is an image of a community gallery, in the format
	// "/CommunityGalleries/{name}/Images/{image}/Versions/{version}".
	CommunityGalleryImageID string `json:"communityGalleryImageID,omitempty"`
	// SharedGalleryImageID is an image of a shared gallery, in the format
	// "/SharedGalleries/{name}/Images/{image}/Versions/{version}".
	SharedGalleryImageID string `json:"sharedGalleryImageID,omitempty"`
	// Plan is the purchase plan of an image that has one, even if the image comes from a gallery.
	Plan *Plan `json:"plan,omitempty"`
}

// MarketplaceImage identifies an image of the marketplace.
type MarketplaceImage struct {
	// Publisher is the publisher, such as "Canonical". Required.
	Publisher string `json:"publisher"`
	// Offer is the offer, such as "0001-com-ubuntu-server-jammy". Required.
	Offer string `json:"offer"`
	// SKU is the SKU, such as "22_04-lts-gen2". Required.
	SKU string `json:"sku"`
	// Version is a version, such as "22.04.202506100", or "latest" for the newest version at the time when a machine is
	// created. Required.
	Version string `json:"version"`
}

// Plan is a purchase plan. Its terms are accepted once for each subscription.
type Plan struct {
	// Name is the name of the plan, such as "stable-gen2". Required.
	Name string `json:"name"`
	// Product is the product, such as "flatcar-container-linux". Required.
	Product string `json:"product"`
	// Publisher is the publisher, such as "kinvolk". Required.
	Publisher string `json:"publisher"`
	// AcceptTerms allows the provider to accept the terms for the subscription if they are not accepted yet. By default,
	// no machine is created until they are accepted.
	AcceptTerms bool `json:"acceptTerms,omitempty"`
}

// OSDisk is the disk from which a machine boots.
type OSDisk struct {
	// SizeGiB is 1 to 4095. Default: the image's size.
	SizeGiB int32 `json:"sizeGiB,omitempty"`
	// StorageAccountType is Standard_LRS, StandardSSD_LRS, StandardSSD_ZRS, Premium_LRS or Premium_ZRS. Default: Azure's
	// choice for the VM size.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is None, ReadOnly or ReadWrite. Default: Azure's choice.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the disk encryption set whose key encrypts the disk. Default: a key of the platform.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
	// Ephemeral keeps the disk on the host. It is fast and free of charge, and it is lost when the machine moves or is
	// deallocated.
	Ephemeral *Ephemeral `json:"ephemeral,omitempty"`
}

// Ephemeral is the place on the host where a disk is kept.
type Ephemeral struct {
	// Placement is CacheDisk, ResourceDisk or NvmeDisk. Default: Azure's choice for the VM size.
	Placement string `json:"placement,omitempty"`
}

// DataDisk is an additional disk.
type DataDisk struct {
	// LUN is the number that identifies the disk in the machine, 0 to 63. It must be unique. Required.
	LUN *int32 `json:"lun"`
	// SizeGiB is 1 to 65536. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// StorageAccountType is a type of osDisk.storageAccountType, PremiumV2_LRS or UltraSSD_LRS. Default: Azure's choice.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is None, ReadOnly or ReadWrite. Default: Azure's choice.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the disk encryption set whose key encrypts the disk. Default: a key of the platform.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
}

// NetworkInterface is one interface with one IPv4 address.
type NetworkInterface struct {
	// SubnetID is the subnet. Required.
	SubnetID string `json:"subnetID"`
	// PublicIP gives the interface its own public address (static, SKU Standard).
	PublicIP bool `json:"publicIP,omitempty"`
	// AcceleratedNetworking enables accelerated networking. It needs a VM size that supports it.
	AcceleratedNetworking bool `json:"acceleratedNetworking,omitempty"`
	// IPForwarding lets the interface accept traffic for other addresses, as some network plugins require.
	IPForwarding bool `json:"ipForwarding,omitempty"`
	// SecurityGroupID is a network security group, in addition to that of the subnet.
	SecurityGroupID string `json:"securityGroupID,omitempty"`
	// ApplicationSecurityGroupIDs are application security groups to join.
	ApplicationSecurityGroupIDs []string `json:"applicationSecurityGroupIDs,omitempty"`
	// LoadBalancerBackendPoolIDs are backend address pools of load balancers to join.
	LoadBalancerBackendPoolIDs []string `json:"loadBalancerBackendPoolIDs,omitempty"`
}

// Spot contains the conditions for spare capacity.
type Spot struct {
	// MaxPrice is the highest price in US dollars per hour. The default -1 means the price of a regular machine.
	MaxPrice *float64 `json:"maxPrice,omitempty"`
	// EvictionPolicy is Delete or Deallocate. Default: Delete, so that Machinist replaces an evicted machine.
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
}

// Identity contains the managed identities of a machine.
type Identity struct {
	// SystemAssigned gives the machine a system-assigned identity.
	SystemAssigned bool `json:"systemAssigned,omitempty"`
	// UserAssignedIDs are user-assigned identities.
	UserAssignedIDs []string `json:"userAssignedIDs,omitempty"`
}

// BootDiagnostics is the storage of the console's output.
type BootDiagnostics struct {
	// StorageURI is the blob endpoint of a storage account. Default: storage that Azure manages.
	StorageURI string `json:"storageURI,omitempty"`
}

// Resize is the way in which the size of a machine changes.
type Resize string

const (
	// ResizeNever replaces the machine.
	ResizeNever Resize = "Never"
	// ResizeDeallocate drains the node, stops and deallocates the machine, changes its size and starts it again.
	ResizeDeallocate Resize = "Deallocate"
)

const defaultAdmin = "machinist"

// ParseSpec parses and validates a providerSpec and sets defaults. Its errors are InvalidArgument and name the field.
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
