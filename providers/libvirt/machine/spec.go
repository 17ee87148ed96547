// Package machine is the providerSpec of the libvirt provider: its fields, and which values are refused with the field
// that is wrong. It makes no call.
package machine

import (
	"cmp"

	"machinist.dev/machinist/pkg/provider"
)

// The API version and kind of a providerSpec.
const (
	APIVersion = "libvirt.machinist.dev/v1beta1"
	Kind       = "LibvirtMachine"
)

// Spec is the providerSpec of this provider: one domain of the hypervisor that the class's credentials name.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// VCPUs is the number of virtual CPUs, 1 to 512. Required.
	VCPUs int32 `json:"vcpus"`
	// MemoryMiB is the memory of the domain in MiB, 64 to 16777216. Required.
	MemoryMiB int64 `json:"memoryMiB"`
	// CPU is the processor that the guest sees. By default host-passthrough with domainType kvm, and maximum with qemu.
	CPU *CPU `json:"cpu,omitempty"`
	// DomainType is kvm or qemu, which emulates the processor and is many times slower. Default: kvm.
	DomainType string `json:"domainType,omitempty"`
	// Architecture is amd64 or arm64. Default: amd64.
	Architecture string `json:"architecture,omitempty"`
	// MachineType is QEMU's, such as "pc-q35-7.2". Default: q35, for arm64 virt.
	MachineType string `json:"machineType,omitempty"`
	// Firmware is bios or uefi. Default: bios, for arm64 uefi.
	Firmware string `json:"firmware,omitempty"`
	// Kernel makes the domain boot a kernel from outside of its disk. By default the firmware boots the disk.
	Kernel *Kernel `json:"kernel,omitempty"`
	// Volume is what the domain boots from: it is made with the machine and deleted with it. Required.
	Volume Volume `json:"volume"`
	// Disks are made empty, attached after the volume in this order and deleted with the machine; at most 16.
	Disks []Disk `json:"disks,omitempty"`
	// Networks are the domain's network interfaces, the first one its primary; 1 to 8.
	Networks []Network `json:"networks"`
	// AddressSource is where the machine's addresses are read: lease, which are the leases of libvirt's own networks, or
	// agent, the QEMU guest agent in the image. Default: lease.
	AddressSource string `json:"addressSource,omitempty"`
	// SeedPool is the storage pool of the small volume with the user data. Default: volume.pool.
	SeedPool string `json:"seedPool,omitempty"`
	// NetworkConfig is cloud-init's network-config, as text; at most 16 KiB. By default the image decides, usually for
	// DHCP.
	NetworkConfig string `json:"networkConfig,omitempty"`
	// ConsoleLog writes the serial console into a volume of volume.pool, which is deleted with the machine. The pool has
	// to be a directory. Default: false.
	ConsoleLog bool `json:"consoleLog,omitempty"`
	// KubeletAgent says that the machines bring an agent that changes the version of their kubelet in place, as
	// docs/updates.md asks of one. By default another version is another machine.
	KubeletAgent bool `json:"kubeletAgent,omitempty"`
	// Zone is the zone of the nodes, for their label. By default they have none.
	Zone string `json:"zone,omitempty"`
}

// CPU is the processor that a guest sees.
type CPU struct {
	// Mode is host-passthrough, host-model, maximum or custom. Default: custom if there is a model.
	Mode string `json:"mode,omitempty"`
	// Model is the name of a processor, such as "EPYC", for the mode custom.
	Model string `json:"model,omitempty"`
}

// Kernel is a kernel, whose file is a volume.
type Kernel struct {
	// Pool is the storage pool of the files. Default: volume.pool.
	Pool string `json:"pool,omitempty"`
	// Image is the volume that is the kernel. Required.
	Image string `json:"image"`
	// Initrd is the volume that is the initial RAM disk. By default there is none.
	Initrd string `json:"initrd,omitempty"`
	// CommandLine is the kernel's, at most 2048 bytes. It is no place for secrets. By default it is empty.
	CommandLine string `json:"commandLine,omitempty"`
}

// Volume is what a domain boots from.
type Volume struct {
	// Pool is the storage pool in which it is made. Required.
	Pool string `json:"pool"`
	// Base is the volume that it starts as a copy of; the copy is made as the guest writes, so base must stay as it is as
	// long as there are machines of it. By default the volume is empty.
	Base string `json:"base,omitempty"`
	// BasePool is the storage pool of base. Default: pool.
	BasePool string `json:"basePool,omitempty"`
	// SizeGiB is 1 to 65536, and not less than base has. Required.
	SizeGiB int64 `json:"sizeGiB"`
}

// Disk is a volume that is made empty.
type Disk struct {
	// Name tells the machine's disks apart, and is the serial number that the guest sees: 1 to 16 lower-case letters,
	// digits and inner hyphens. Required.
	Name string `json:"name"`
	// SizeGiB is 1 to 65536. Required.
	SizeGiB int64 `json:"sizeGiB"`
	// Pool is the storage pool in which it is made. Default: volume.pool.
	Pool string `json:"pool,omitempty"`
}

// Network is a network interface. It has exactly one of Network, Bridge and User. Its hardware address follows from the
// machine and stays the same.
type Network struct {
	// Network is a network of libvirt's.
	Network string `json:"network,omitempty"`
	// Bridge is a bridge of the hypervisor.
	Bridge string `json:"bridge,omitempty"`
	// User is true for QEMU's own network, from which a guest reaches others and which nobody reaches. For trials.
	User bool `json:"user,omitempty"`
	// Model is the model of the interface: virtio, e1000, e1000e or rtl8139. Default: virtio.
	Model string `json:"model,omitempty"`
}

// Values of fields that have few.
const (
	DomainKVM  = "kvm"
	DomainQEMU = "qemu"

	ArchitectureAMD64 = "amd64"
	ArchitectureARM64 = "arm64"

	FirmwareBIOS = "bios"
	FirmwareUEFI = "uefi"

	AddressesOfLeases = "lease"
	AddressesOfAgent  = "agent"

	CPUPassthrough = "host-passthrough"
	CPUHostModel   = "host-model"
	CPUMaximum     = "maximum"
	CPUCustom      = "custom"
)

// VolumeMark is what the names of all volumes begin with that are made for machines.
const VolumeMark = "machinist_"

// ParseSpec reads a providerSpec, checks it and fills in the defaults. The error is an InvalidArgument that names the
// field.
func ParseSpec(raw []byte) (Spec, error) {
	var s Spec
	if err := provider.DecodeSpec(raw, APIVersion, Kind, &s); err != nil {
		return Spec{}, err
	}
	if err := s.validate(); err != nil {
		return Spec{}, err
	}
	s.complete()
	return s, nil
}

// complete fills in the defaults.
func (s *Spec) complete() {
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
	s.AddressSource = cmp.Or(s.AddressSource, AddressesOfLeases)
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
