// Package machine defines the providerSpec of the libvirt provider and validates it. It does not call libvirt.
package machine

import (
	"cmp"

	"machinist.dev/machinist/pkg/provider"
)

// API version and kind of a providerSpec.
const (
	APIVersion = "libvirt.machinist.dev/v1beta1"
	Kind       = "LibvirtMachine"
)

// Spec is the providerSpec of the libvirt provider. It describes one domain on the hypervisor that the credentials of
// the class name. The comments of its fields are the user documentation: hack/reference writes
// docs/reference/provider-specs.md from them. They name other fields as users write them.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// VCPUs is the number of virtual CPUs, 1 to 512. Required.
	VCPUs int32 `json:"vcpus"`
	// MemoryMiB is the memory of the domain in MiB, 64 to 16777216. Required.
	MemoryMiB int64 `json:"memoryMiB"`
	// CPU is the processor that the guest sees. Default: host-passthrough with domainType kvm, and maximum with qemu.
	CPU *CPU `json:"cpu,omitempty"`
	// DomainType is kvm, or qemu, which emulates the processor and is many times slower. Default: kvm.
	DomainType string `json:"domainType,omitempty"`
	// Architecture is amd64 or arm64. Default: amd64.
	Architecture string `json:"architecture,omitempty"`
	// MachineType is the machine type of QEMU, such as "pc-q35-7.2". Default: q35, for arm64 virt.
	MachineType string `json:"machineType,omitempty"`
	// Firmware is bios or uefi, without secure boot. Default: bios, for arm64 uefi.
	Firmware string `json:"firmware,omitempty"`
	// Kernel is a kernel that is not on the disk. By default the firmware boots the disk.
	Kernel *Kernel `json:"kernel,omitempty"`
	// Volume is the volume from which the domain boots. It is created and deleted with the machine. Required.
	Volume Volume `json:"volume"`
	// Disks are empty volumes that are attached after volume in this order and deleted with the machine; at most 16.
	Disks []Disk `json:"disks,omitempty"`
	// Networks are the domain's network interfaces, 1 to 8. The first one is the primary interface. Each has exactly one
	// of network, bridge and user. Required.
	Networks []Network `json:"networks"`
	// AddressSource is the source of the machine's addresses: lease for the leases of libvirt's networks, or agent for
	// the QEMU guest agent in the image, which needs a flag for serving certificates. Default: lease.
	AddressSource string `json:"addressSource,omitempty"`
	// SeedPool is the storage pool of the small volume with the user data. Default: volume.pool.
	SeedPool string `json:"seedPool,omitempty"`
	// NetworkConfig is cloud-init's network-config, as text; at most 16 KiB. By default the image decides, and usually
	// uses DHCP.
	NetworkConfig string `json:"networkConfig,omitempty"`
	// ConsoleLog writes the serial console to a volume in volume.pool, which is deleted with the machine. The pool must
	// be a directory. Default: false.
	ConsoleLog bool `json:"consoleLog,omitempty"`
	// KubeletAgent means that the machines contain an agent that updates their kubelet in place. By default another
	// kubelet version requires another instance.
	KubeletAgent bool `json:"kubeletAgent,omitempty"`
	// Zone is the failure domain of the machines, for health checks and autoscalers. libvirt has no cloud controller
	// manager, so the Nodes get a label for the zone only from spec.node.labels. Default: none.
	Zone string `json:"zone,omitempty"`
}

// CPU is the processor that a guest sees.
type CPU struct {
	// Mode is host-passthrough, host-model, maximum or custom. Default: custom, if model is set.
	Mode string `json:"mode,omitempty"`
	// Model is the name of a processor, such as "EPYC". It is only allowed with the mode custom.
	Model string `json:"model,omitempty"`
}

// Kernel is a kernel whose files are volumes.
type Kernel struct {
	// Pool is the storage pool of the files. Default: volume.pool.
	Pool string `json:"pool,omitempty"`
	// Image is the volume that contains the kernel. Required.
	Image string `json:"image"`
	// Initrd is the volume that contains the initial RAM disk. Default: none.
	Initrd string `json:"initrd,omitempty"`
	// CommandLine is the kernel command line, at most 2048 bytes. It must not contain secrets. Default: empty.
	CommandLine string `json:"commandLine,omitempty"`
}

// Volume is the volume from which a domain boots.
type Volume struct {
	// Pool is the storage pool in which the volume is created. Required.
	Pool string `json:"pool"`
	// Base is the volume of which the new volume is a copy. The new volume stores only the differences, so the base must
	// not change while machines use it. By default the new volume is empty.
	Base string `json:"base,omitempty"`
	// BasePool is the storage pool of base. Default: pool.
	BasePool string `json:"basePool,omitempty"`
	// SizeGiB is 1 to 65536, and not less than the size of the base. Required.
	SizeGiB int64 `json:"sizeGiB"`
}

// Disk is an additional volume, which is created empty.
type Disk struct {
	// Name is the name of the disk and the serial number that the guest sees (/dev/disk/by-id/virtio-NAME): 1 to 16
	// lower-case letters, digits and inner hyphens, unique among the disks. Required.
	Name string `json:"name"`
	// SizeGiB is 1 to 65536. Required.
	SizeGiB int64 `json:"sizeGiB"`
	// Pool is the storage pool in which the disk is created. Default: volume.pool.
	Pool string `json:"pool,omitempty"`
}

// Network is a network interface. It has exactly one of Network, Bridge and User. Its hardware address is derived
// from the machine and stays the same.
type Network struct {
	// Network is a network of libvirt.
	Network string `json:"network,omitempty"`
	// Bridge is a bridge of the hypervisor.
	Bridge string `json:"bridge,omitempty"`
	// User selects QEMU's user network. The guest can open connections to others, but others cannot reach the guest. Use
	// it only for trials.
	User bool `json:"user,omitempty"`
	// Model is the model of the interface: virtio, e1000, e1000e or rtl8139. Default: virtio.
	Model string `json:"model,omitempty"`
}

// Allowed values of fields.
const (
	DomainKVM  = "kvm"
	DomainQEMU = "qemu"

	ArchitectureAMD64 = "amd64"
	ArchitectureARM64 = "arm64"

	FirmwareBIOS = "bios"
	FirmwareUEFI = "uefi"

	AddressSourceLease = "lease"
	AddressSourceAgent = "agent"

	CPUPassthrough = "host-passthrough"
	CPUHostModel   = "host-model"
	CPUMaximum     = "maximum"
	CPUCustom      = "custom"
)

// VolumePrefix is the prefix of the names of all volumes that are created for machines.
const VolumePrefix = "machinist_"

// ParseSpec reads a providerSpec, validates it and sets the defaults. The error is an InvalidArgument with the field.
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

// setDefaults sets the defaults.
func (s *Spec) setDefaults() {
	s.DomainType = cmp.Or(s.DomainType, DomainKVM)
	s.Architecture = cmp.Or(s.Architecture, ArchitectureAMD64)
	machineType, firmware, cpu := "q35", FirmwareBIOS, CPUPassthrough
	if s.Architecture == ArchitectureARM64 {
		machineType, firmware = "virt", FirmwareUEFI
	}
	if s.DomainType == DomainQEMU {
		cpu = CPUMaximum
	}
	s.MachineType, s.Firmware = cmp.Or(s.MachineType, machineType), cmp.Or(s.Firmware, firmware)
	if s.CPU == nil {
		s.CPU = &CPU{Mode: cpu}
	} else {
		s.CPU = &CPU{Mode: cmp.Or(s.CPU.Mode, CPUCustom), Model: s.CPU.Model}
	}
	s.Volume.BasePool = cmp.Or(s.Volume.BasePool, s.Volume.Pool)
	s.SeedPool = cmp.Or(s.SeedPool, s.Volume.Pool)
	s.AddressSource = cmp.Or(s.AddressSource, AddressSourceLease)
	for i := range s.Disks {
		s.Disks[i].Pool = cmp.Or(s.Disks[i].Pool, s.Volume.Pool)
	}
	for i := range s.Networks {
		s.Networks[i].Model = cmp.Or(s.Networks[i].Model, "virtio")
	}
	if s.Kernel != nil {
		s.Kernel.Pool = cmp.Or(s.Kernel.Pool, s.Volume.Pool)
	}
}
