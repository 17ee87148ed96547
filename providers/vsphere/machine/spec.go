// Package machine defines and validates the providerSpec of the vSphere provider. It does not call vCenter.
package machine

import (
	"sigs.k8s.io/json"

	"machinist.dev/machinist/pkg/provider"
)

// These are the apiVersion and kind of the providerSpec.
const (
	APIVersion = "vsphere.machinist.dev/v1beta1"
	Kind       = "VSphereMachine"
)

// Spec is the providerSpec of the vSphere provider. Objects of vCenter are named by their path in the inventory, below
// the datacenter's folder for their kind. hack/reference generates docs/reference/provider-specs.md from the comments
// of the fields. So these comments use the JSON names of fields.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// VCenter is the name of the vCenter in the flag --vsphere-vcenter of the provider. Required.
	VCenter string `json:"vcenter"`
	// Datacenter is the path of the datacenter, such as "dc-1" or "europe/dc-1". Required.
	Datacenter string `json:"datacenter"`
	// Folder is the path of the folder for the virtual machine, below the datacenter's folder of virtual machines. Its
	// virtual machines and those of its subfolders are the scope of the provider's lists. Required.
	Folder string `json:"folder"`
	// Template is the path of the virtual machine or template that is cloned, below the datacenter's folder of virtual
	// machines. Required.
	Template string `json:"template"`
	// LinkedClone makes a clone that shares the disks of the template's current snapshot. Such a clone is ready within
	// seconds, but its disks cannot grow and it cannot outlive the template. Default: a full clone.
	LinkedClone bool `json:"linkedClone,omitempty"`
	// Cluster is the path of the cluster or host, below the datacenter's folder of hosts. Required.
	Cluster string `json:"cluster"`
	// ResourcePool is the path of the resource pool below the cluster. Default: the cluster itself.
	ResourcePool string `json:"resourcePool,omitempty"`
	// Datastore is the path of the datastore, below the datacenter's folder of datastores. Set exactly one of datastore
	// and datastoreCluster.
	Datastore string `json:"datastore,omitempty"`
	// DatastoreCluster is the path of the datastore cluster, below the datacenter's folder of datastores. vCenter
	// recommends one of its datastores.
	DatastoreCluster string `json:"datastoreCluster,omitempty"`
	// Networks are the paths of the networks, below the datacenter's folder of networks, one for each network adapter.
	// 1 to 10 are required. They replace the network adapters of the template.
	Networks []Network `json:"networks"`
	// CPUs is the number of virtual CPUs, 1 to 768. Required.
	CPUs int32 `json:"cpus"`
	// CoresPerSocket is the number of virtual CPUs in a socket, a divisor of cpus. Default: that of the template.
	CoresPerSocket int32 `json:"coresPerSocket,omitempty"`
	// MemoryMiB is the memory in MiB, a multiple of 4. Required.
	MemoryMiB int64 `json:"memoryMiB"`
	// RootDiskGiB is the size of the template's first disk in GiB, at least its size in the template. Default: its size
	// in the template.
	RootDiskGiB int32 `json:"rootDiskGiB,omitempty"`
	// Disks are additional empty disks, which are deleted with the virtual machine. At most 13 are allowed.
	Disks []Disk `json:"disks,omitempty"`
	// VGPUProfiles are the names of the vGPU profiles, such as "grid_t4-4q". At most 4 are allowed.
	VGPUProfiles []string `json:"vgpuProfiles,omitempty"`
	// PCIDevices are devices of the host that vCenter passes to the virtual machine. At most 16 are allowed.
	PCIDevices []PCIDevice `json:"pciDevices,omitempty"`
	// Region is the region of the machine in the cloud controller manager. Default: none.
	Region string `json:"region,omitempty"`
	// Zone is the zone of the machine in the cloud controller manager. Default: none.
	Zone string `json:"zone,omitempty"`
}

// Network is a network adapter.
type Network struct {
	// Path is the path of the network or port group. Required.
	Path string `json:"path"`
	// Adapter is the type of the adapter: vmxnet3, e1000e or sriov. Default: vmxnet3.
	Adapter string `json:"adapter,omitempty"`
	// Address is refused. Static addresses are not supported, because all virtual machines of a class would get the
	// same address. Use DHCP.
	Address string `json:"address,omitempty"`
}

// Disk is an additional disk.
type Disk struct {
	// SizeGiB is the size of the disk in GiB, 1 to 63488. Required.
	SizeGiB int32 `json:"sizeGiB"`
}

// PCIDevice selects a device of the host by its IDs.
type PCIDevice struct {
	// VendorID is the vendor ID of the device, such as 4318 for NVIDIA. Required.
	VendorID int32 `json:"vendorID"`
	// DeviceID is the device ID of the device. Required.
	DeviceID int32 `json:"deviceID"`
}

// Location is where the virtual machines of a class are.
type Location struct {
	VCenter    string `json:"vcenter"`
	Datacenter string `json:"datacenter"`
	Folder     string `json:"folder"`
}

// Location returns the location in the specification.
func (s *Spec) Location() Location { return Location{s.VCenter, s.Datacenter, s.Folder} }

// ParseLocation parses only the location in a providerSpec, so that the virtual machines of a class are found even if
// another field has become invalid.
func ParseLocation(raw []byte) (Location, error) {
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Location
	}
	if len(raw) > provider.MaxSpecBytes || json.UnmarshalCaseSensitivePreserveInts(raw, &header) != nil ||
		header.APIVersion != APIVersion || header.Kind != Kind {
		return Location{}, provider.Errorf(provider.InvalidArgument, "providerSpec is not a %s", Kind)
	}
	if err := header.Location.validate(); err != nil {
		return Location{}, err
	}
	return header.Location, nil
}

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
