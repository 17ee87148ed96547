// Package machine defines and validates the providerSpec of the libvirt provider. It does not call libvirt.
package machine

import (
	"cmp"

	"machinist.dev/machinist/pkg/provider"
)

// These are the apiVersion and kind of the providerSpec.
const (
	APIVersion = "libvirt.machinist.dev/v1beta1"
	Kind       = "LibvirtMachine"
)

// Spec is the providerSpec of the libvirt provider. It describes a domain on the hypervisor in the credentials of the
// class. hack/reference generates docs/reference/provider-specs.md from the comments of its fields. So these comments
// use the JSON names of fields.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// VCPUs is the number of virtual CPUs, 1 to 512. Required.
	VCPUs int32 `json:"vcpus"`
	// MemoryMiB is the memory of the domain in MiB, 64 to 16777216. Required.
	MemoryMiB int64 `json:"memoryMiB"`
	// CPU is the processor model of the guest. By default, cpu.mode is host-passthrough if domainType is kvm, and
	// maximum if domainType is qemu.
	CPU *CPU `json:"cpu,omitempty"`
	// DomainType is kvm or qemu. With qemu, QEMU emulates the processor, which makes the machine many times slower.
	// Default: kvm.
	DomainType string `json:"domainType,omitempty"`
	// Architecture is the processor architecture: amd64 or arm64. Default: amd64.
	Architecture string `json:"architecture,omitempty"`
	// MachineType is the machine type of QEMU, such as "pc-q35-7.2". Default: q35, or virt if architecture is arm64.
	MachineType string `json:"machineType,omitempty"`
	// Firmware is bios or uefi. Secure boot is not available. Default: bios, or uefi if architecture is arm64.
	Firmware string `json:"firmware,omitempty"`
	// Kernel is a kernel to boot instead of the kernel on the disk. By default, the firmware boots from the disk.
	Kernel *Kernel `json:"kernel,omitempty"`
	// Volume is the volume that the domain boots from. It is created and deleted with the machine. Required.
	Volume Volume `json:"volume"`
	// Disks are attached to the machine in this order, are empty at first, and are deleted with the machine. At most 16
	// are allowed.
	Disks []Disk `json:"disks,omitempty"`
	// Networks are the network interfaces of the domain, 1 to 8. The first one is the primary interface. For each
	// interface, set exactly one of network, bridge and user. Required.
	Networks []Network `json:"networks"`
	// AddressSource specifies how the provider finds the addresses of the machine. With lease, the provider reads the
	// DHCP leases of libvirt's networks. With agent, the provider asks the QEMU guest agent in the image. If the agent
	// reports an address outside the networks in the flag --approve-guest-addresses, no serving certificate contains
	// this address. Default: lease.
	AddressSource string `json:"addressSource,omitempty"`
	// SeedPool is the storage pool for the small volume with the user data. Default: volume.pool.
	SeedPool string `json:"seedPool,omitempty"`
	// NetworkConfig is cloud-init's file network-config, with at most 16 KiB. By default, the image configures the
	// network, usually with DHCP.
	NetworkConfig string `json:"networkConfig,omitempty"`
	// ConsoleLog stores the output of the serial console in a volume in volume.pool, which must be of the type dir. The
	// volume is deleted with the machine. Default: false.
	ConsoleLog bool `json:"consoleLog,omitempty"`
	// KubeletAgent is true if an agent in the machines updates the kubelet in place. By default, a change of the
	// kubelet version replaces the machine.
	KubeletAgent bool `json:"kubeletAgent,omitempty"`
	// Zone is the failure domain of the machines, for health checks and autoscalers. libvirt has no cloud controller
	// manager, so Nodes have a zone label only if spec.node.labels contains it. Default: none.
	Zone string `json:"zone,omitempty"`
}

// CPU is the processor model of a guest.
type CPU struct {
	// Mode is host-passthrough, host-model, maximum or custom. Default: custom.
	Mode string `json:"mode,omitempty"`
	// Model is the name of a processor model, such as "EPYC". It is allowed only with the mode custom.
	Model string `json:"model,omitempty"`
}

// Kernel boots the guest from a kernel in a volume, instead of from the disk.
type Kernel struct {
	// Pool is the storage pool with the kernel. Default: volume.pool.
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
	// Pool is the storage pool of the volume. Required.
	Pool string `json:"pool"`
	// Base is the volume with the initial content. The new volume stores only the differences, so the base must not
	// change while machines use it. By default, the new volume is empty.
	Base string `json:"base,omitempty"`
	// BasePool is the storage pool of the base volume. Default: pool.
	BasePool string `json:"basePool,omitempty"`
	// SizeGiB is the size of the volume in GiB, 1 to 65536, and at least the size of the base volume. Required.
	SizeGiB int64 `json:"sizeGiB"`
}

// Disk is an additional empty volume.
type Disk struct {
	// Name is the unique name of the disk: 1 to 16 lower-case letters, digits and inner hyphens. In the guest, the name
	// is the serial number of the disk (/dev/disk/by-id/virtio-NAME). Required.
	Name string `json:"name"`
	// SizeGiB is the size of the disk in GiB, 1 to 65536. Required.
	SizeGiB int64 `json:"sizeGiB"`
	// Pool is the storage pool of the disk. Default: volume.pool.
	Pool string `json:"pool,omitempty"`
}

// Network is a network interface. Set exactly one of Network, Bridge and User. The hardware address is derived from the
// machine and never changes.
type Network struct {
	// Network is the name of a libvirt network.
	Network string `json:"network,omitempty"`
	// Bridge is the name of a network bridge on the hypervisor.
	Bridge string `json:"bridge,omitempty"`
	// User connects the interface to QEMU's user network. The guest can connect to other hosts, but other hosts cannot
	// connect to the guest. Use this network only for trials.
	User bool `json:"user,omitempty"`
	// Model is the model of the network interface: virtio, e1000, e1000e or rtl8139. Default: virtio.
	Model string `json:"model,omitempty"`
}

// These are the allowed values of fields.
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

// VolumePrefix begins the names of all volumes of machines.
const VolumePrefix = "machinist_"

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
	s.setDefaults()
	return s, nil
}

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
