// Package machine is the providerSpec of the Azure provider: what it may say, and what is refused with the field that
// is wrong. It knows nothing of Azure's SDK but how resource IDs are written.
package machine

import (
	"maps"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// What a providerSpec says it is.
const (
	APIVersion = "azure.machinist.dev/v1beta1"
	Kind       = "AzureMachine"
)

// Spec is the providerSpec of this provider.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Location is the region, such as "westeurope". Required.
	Location string `json:"location"`
	// ResourceGroup is where everything of a machine is made. It must exist. Required.
	ResourceGroup string `json:"resourceGroup"`
	// VMSize is such as "Standard_D4s_v5". Required.
	VMSize string `json:"vmSize"`
	// Image is what the machine boots. Required.
	Image Image `json:"image"`
	// OSDisk is the machine's first disk. By default it is as the image says.
	OSDisk OSDisk `json:"osDisk,omitzero"`
	// DataDisks are made empty with the machine and go with it; at most 64.
	DataDisks []DataDisk `json:"dataDisks,omitempty"`
	// NetworkInterfaces are the machine's, the first one its primary; 1 to 8.
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces"`

	// Zone is the availability zone, such as "1". By default the machine is in none.
	Zone string `json:"zone,omitempty"`
	// AvailabilitySetID is the resource ID of the availability set to join. It excludes Zone and ScaleSetID.
	AvailabilitySetID string `json:"availabilitySetID,omitempty"`
	// ScaleSetID is the resource ID of the scale set with flexible orchestration to join.
	ScaleSetID string `json:"scaleSetID,omitempty"`
	// FaultDomain is the scale set's fault domain. By default Azure chooses. It needs ScaleSetID.
	FaultDomain *int32 `json:"faultDomain,omitempty"`
	// CapacityReservationGroupID is the resource ID of the reservation to make the machine from.
	CapacityReservationGroupID string `json:"capacityReservationGroupID,omitempty"`
	// Spot asks for spare capacity, which Azure may take back. By default the machine is a regular one.
	Spot *Spot `json:"spot,omitempty"`

	// Identity is what the machine may authenticate to Azure as. By default it has none.
	Identity Identity `json:"identity,omitzero"`
	// Tags are put on the machine, its disks, interfaces and addresses, beside Machinist's; at most 40.
	Tags map[string]string `json:"tags,omitempty"`
	// AdminUsername is the user who may log in. Default: "machinist".
	AdminUsername string `json:"adminUsername,omitempty"`
	// SSHPublicKey is that user's key in OpenSSH's format. Azure makes no Linux machine without one. Required.
	SSHPublicKey string `json:"sshPublicKey"`
	// EncryptionAtHost encrypts temporary disks and caches too. The subscription has to be registered for it.
	EncryptionAtHost bool `json:"encryptionAtHost,omitempty"`
	// BootDiagnostics keeps the serial console's output. By default it is not kept.
	BootDiagnostics *BootDiagnostics `json:"bootDiagnostics,omitempty"`

	// Resize says whether another VMSize is given to a machine in place. Default: "Never".
	Resize Resize `json:"resize,omitempty"`
}

// Image has exactly one of the three IDs or Marketplace.
type Image struct {
	// Marketplace is an image that a publisher offers.
	Marketplace *MarketplaceImage `json:"marketplace,omitempty"`
	// GalleryImageID is the resource ID of a managed image, or of an image or image version in a compute gallery.
	// Without a version it is the latest one at the time that a machine is made.
	GalleryImageID string `json:"galleryImageID,omitempty"`
	// CommunityGalleryImageID is such as "/CommunityGalleries/{name}/Images/{image}/Versions/{version}".
	CommunityGalleryImageID string `json:"communityGalleryImageID,omitempty"`
	// SharedGalleryImageID is such as "/SharedGalleries/{name}/Images/{image}/Versions/{version}".
	SharedGalleryImageID string `json:"sharedGalleryImageID,omitempty"`
	// Plan is the purchase plan of an image that has one.
	Plan *Plan `json:"plan,omitempty"`
}

// MarketplaceImage names an image of the marketplace.
type MarketplaceImage struct {
	Publisher string `json:"publisher"`
	Offer     string `json:"offer"`
	SKU       string `json:"sku"`
	// Version is such as "22.04.202506100", or "latest".
	Version string `json:"version"`
}

// Plan is a purchase plan. The terms of one are accepted once for a subscription.
type Plan struct {
	Name      string `json:"name"`
	Product   string `json:"product"`
	Publisher string `json:"publisher"`
	// AcceptTerms lets the provider accept the terms where nobody has yet. By default a machine is not made then.
	AcceptTerms bool `json:"acceptTerms,omitempty"`
}

// OSDisk is the disk that a machine boots from.
type OSDisk struct {
	// SizeGiB is 1 to 4095. Default: the image's size.
	SizeGiB int32 `json:"sizeGiB,omitempty"`
	// StorageAccountType is one of StorageAccountTypes, but for the two that cannot boot. Default: Azure's for the VM
	// size.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is None, ReadOnly or ReadWrite. Default: Azure's.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the resource ID of the set whose key encrypts the disk. Default: a key of the platform.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
	// Ephemeral keeps the disk on the host: it is fast and lost when the machine moves or is deallocated.
	Ephemeral *Ephemeral `json:"ephemeral,omitempty"`
}

// Ephemeral says where on the host a disk is.
type Ephemeral struct {
	// Placement is CacheDisk, ResourceDisk or NvmeDisk. Default: Azure's for the VM size.
	Placement string `json:"placement,omitempty"`
}

// DataDisk is a disk beside the first one.
type DataDisk struct {
	// LUN identifies the disk in the machine, 0 to 63. Required, each once.
	LUN *int32 `json:"lun"`
	// SizeGiB is 1 to 65536. Required.
	SizeGiB int32 `json:"sizeGiB"`
	// StorageAccountType is one of StorageAccountTypes. Default: Azure's.
	StorageAccountType string `json:"storageAccountType,omitempty"`
	// Caching is None, ReadOnly or ReadWrite. Default: Azure's.
	Caching string `json:"caching,omitempty"`
	// DiskEncryptionSetID is the resource ID of the set whose key encrypts the disk. Default: a key of the platform.
	DiskEncryptionSetID string `json:"diskEncryptionSetID,omitempty"`
}

// NetworkInterface is one interface with one IPv4 address.
type NetworkInterface struct {
	// SubnetID is the resource ID of the subnet. Required.
	SubnetID string `json:"subnetID"`
	// PublicIP gives the interface a public address of its own.
	PublicIP bool `json:"publicIP,omitempty"`
	// AcceleratedNetworking is for VM sizes that can.
	AcceleratedNetworking bool `json:"acceleratedNetworking,omitempty"`
	// IPForwarding lets the interface take traffic for other addresses, as some network plugins need.
	IPForwarding bool `json:"ipForwarding,omitempty"`
	// SecurityGroupID is the resource ID of a network security group. Default: the subnet's only.
	SecurityGroupID string `json:"securityGroupID,omitempty"`
	// ApplicationSecurityGroupIDs are the resource IDs of groups to join.
	ApplicationSecurityGroupIDs []string `json:"applicationSecurityGroupIDs,omitempty"`
	// LoadBalancerBackendPoolIDs are the resource IDs of backend address pools to join.
	LoadBalancerBackendPoolIDs []string `json:"loadBalancerBackendPoolIDs,omitempty"`
}

// Spot are the conditions of spare capacity.
type Spot struct {
	// MaxPrice is in US dollars an hour; -1, the default, is the price of a regular machine.
	MaxPrice *float64 `json:"maxPrice,omitempty"`
	// EvictionPolicy is Delete or Deallocate. Default: Delete, so that an evicted machine is replaced.
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
}

// Identity are the managed identities of a machine.
type Identity struct {
	SystemAssigned bool `json:"systemAssigned,omitempty"`
	// UserAssignedIDs are resource IDs.
	UserAssignedIDs []string `json:"userAssignedIDs,omitempty"`
}

// BootDiagnostics says where the console's output is kept.
type BootDiagnostics struct {
	// StorageURI is the blob endpoint of a storage account. Default: storage that Azure manages.
	StorageURI string `json:"storageURI,omitempty"`
}

// Resize is whether, and how, a machine's size changes in place.
type Resize string

const (
	// ResizeNever replaces the machine.
	ResizeNever Resize = "Never"
	// ResizeDeallocate drains the node, stops and deallocates the machine, changes its size and starts it again.
	ResizeDeallocate Resize = "Deallocate"
)

const defaultAdmin = "machinist"

// ParseSpec reads a providerSpec, checks it and fills in defaults. Its errors are InvalidArgument and name the field.
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

// TagNames are the names of the tags, sorted and with commas between them.
func (s *Spec) TagNames() string { return strings.Join(slices.Sorted(maps.Keys(s.Tags)), ",") }
