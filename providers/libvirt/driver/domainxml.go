package driver

import (
	"encoding/xml"
	"fmt"

	"github.com/google/uuid"

	"machinist.dev/machinist/providers/libvirt/machine"
)

// These types are the part of a domain's XML that Machinist writes. https://libvirt.org/formatdomain.html
type (
	domainXML struct {
		XMLName  xml.Name    `xml:"domain"`
		Type     string      `xml:"type,attr"`
		Name     string      `xml:"name"`
		UUID     string      `xml:"uuid"`
		Metadata metadataXML `xml:"metadata"`
		Memory   memoryXML   `xml:"memory"`
		VCPU     int32       `xml:"vcpu"`
		OS       osXML       `xml:"os"`
		Features featuresXML `xml:"features"`
		CPU      cpuXML      `xml:"cpu"`
		Clock    clockXML    `xml:"clock"`
		OnCrash  string      `xml:"on_crash"`
		Devices  devicesXML  `xml:"devices"`
	}
	metadataXML struct {
		Machinist metadata
	}
	memoryXML struct {
		Unit  string `xml:"unit,attr"`
		Value int64  `xml:",chardata"`
	}
	osXML struct {
		Firmware string       `xml:"firmware,attr,omitempty"`
		Type     osTypeXML    `xml:"type"`
		Features []featureXML `xml:"firmware>feature"`
		Kernel   string       `xml:"kernel,omitempty"`
		Initrd   string       `xml:"initrd,omitempty"`
		Cmdline  string       `xml:"cmdline,omitempty"`
	}
	osTypeXML struct {
		Arch    string `xml:"arch,attr"`
		Machine string `xml:"machine,attr"`
		Value   string `xml:",chardata"`
	}
	featureXML struct {
		Enabled string `xml:"enabled,attr"`
		Name    string `xml:"name,attr"`
	}
	featuresXML struct {
		ACPI *struct{} `xml:"acpi"`
		APIC *struct{} `xml:"apic"`
	}
	cpuXML struct {
		Mode  string `xml:"mode,attr"`
		Model string `xml:"model,omitempty"`
	}
	clockXML struct {
		Offset string     `xml:"offset,attr"`
		Timers []timerXML `xml:"timer"`
	}
	timerXML struct {
		Name       string `xml:"name,attr"`
		TickPolicy string `xml:"tickpolicy,attr,omitempty"`
		Present    string `xml:"present,attr,omitempty"`
	}
	devicesXML struct {
		Disks      []diskXML      `xml:"disk"`
		Interfaces []interfaceXML `xml:"interface"`
		Serial     serialXML      `xml:"serial"`
		Channel    channelXML     `xml:"channel"`
		RNG        rngXML         `xml:"rng"`
	}
	diskXML struct {
		Type     string        `xml:"type,attr"`
		Device   string        `xml:"device,attr"`
		Driver   diskDriverXML `xml:"driver"`
		Source   diskSourceXML `xml:"source"`
		Target   targetXML     `xml:"target"`
		ReadOnly *struct{}     `xml:"readonly"`
		Serial   string        `xml:"serial,omitempty"`
		Boot     *bootXML      `xml:"boot"`
	}
	diskDriverXML struct {
		Name    string `xml:"name,attr"`
		Type    string `xml:"type,attr"`
		Discard string `xml:"discard,attr,omitempty"`
	}
	diskSourceXML struct {
		Pool   string `xml:"pool,attr"`
		Volume string `xml:"volume,attr"`
	}
	targetXML struct {
		Dev string `xml:"dev,attr"`
		Bus string `xml:"bus,attr"`
	}
	bootXML struct {
		Order int `xml:"order,attr"`
	}
	interfaceXML struct {
		Type   string              `xml:"type,attr"`
		MAC    macXML              `xml:"mac"`
		Source *interfaceSourceXML `xml:"source"`
		Model  modelXML            `xml:"model"`
	}
	macXML struct {
		Address string `xml:"address,attr"`
	}
	interfaceSourceXML struct {
		Network string `xml:"network,attr,omitempty"`
		Bridge  string `xml:"bridge,attr,omitempty"`
	}
	modelXML struct {
		Type string `xml:"type,attr"`
	}
	serialXML struct {
		Type   string           `xml:"type,attr"`
		Source *serialSourceXML `xml:"source"`
	}
	serialSourceXML struct {
		Path   string `xml:"path,attr"`
		Append string `xml:"append,attr"`
	}
	channelXML struct {
		Type   string           `xml:"type,attr"`
		Target channelTargetXML `xml:"target"`
	}
	channelTargetXML struct {
		Type string `xml:"type,attr"`
		Name string `xml:"name,attr"`
	}
	rngXML struct {
		Model   string        `xml:"model,attr"`
		Backend rngBackendXML `xml:"backend"`
	}
	rngBackendXML struct {
		Model string `xml:"model,attr"`
		Path  string `xml:",chardata"`
	}
)

type parts struct {
	root    volumeReference
	disks   []volumeReference
	seed    volumeReference
	console string // path of the volume; empty without a console log
	kernel  string // path of the kernel volume
	initrd  string
}

func domainDefinition(id uuid.UUID, name string, spec machine.Spec, m metadata, p parts) (string, error) {
	arch := map[string]string{machine.ArchitectureAMD64: "x86_64", machine.ArchitectureARM64: "aarch64"}[spec.Architecture]
	m.Namespace = metadataURI
	d := domainXML{
		Type: spec.DomainType, Name: name, UUID: id.String(), Metadata: metadataXML{m},
		Memory: memoryXML{"MiB", spec.MemoryMiB}, VCPU: spec.VCPUs,
		OS:       osXML{Type: osTypeXML{arch, spec.MachineType, "hvm"}, Kernel: p.kernel, Initrd: p.initrd},
		Features: featuresXML{ACPI: &struct{}{}},
		CPU:      cpuXML{spec.CPU.Mode, spec.CPU.Model}, Clock: clockXML{Offset: "utc"},
		// libvirt restarts a crashed guest, like a watchdog in a physical machine.
		OnCrash: "restart",
	}
	if spec.Kernel != nil {
		d.OS.Cmdline = spec.Kernel.CommandLine
	}
	if spec.Architecture == machine.ArchitectureAMD64 {
		d.Features.APIC = &struct{}{}
		// virt-install uses the same timers for Linux. With these timers, the clock of a guest loses fewer ticks on a
		// busy hypervisor.
		d.Clock.Timers = []timerXML{{"rtc", "catchup", ""}, {"pit", "delay", ""}, {"hpet", "", "no"}}
	}
	if spec.Firmware == machine.FirmwareUEFI {
		// Secure boot requires keys in the firmware and images that are signed with them.
		d.OS.Firmware, d.OS.Features = "efi", []featureXML{{"no", "secure-boot"}}
	}
	d.Devices = devicesXML{
		Disks:   diskDevices(p, spec),
		Serial:  serialXML{Type: "pty"},
		Channel: channelXML{"unix", channelTargetXML{"virtio", "org.qemu.guest_agent.0"}},
		RNG:     rngXML{"virtio", rngBackendXML{"random", "/dev/urandom"}},
	}
	if p.console != "" {
		d.Devices.Serial = serialXML{"file", &serialSourceXML{p.console, "on"}}
	}
	for i, n := range spec.Networks {
		iface := interfaceXML{Type: "user", MAC: macXML{macAddress(id, i)}, Model: modelXML{n.Model}}
		switch {
		case n.Network != "":
			iface.Type, iface.Source = "network", &interfaceSourceXML{Network: n.Network}
		case n.Bridge != "":
			iface.Type, iface.Source = "bridge", &interfaceSourceXML{Bridge: n.Bridge}
		}
		d.Devices.Interfaces = append(d.Devices.Interfaces, iface)
	}
	raw, err := xml.Marshal(d)
	return string(raw), err
}

// diskDevices returns the root disk, the other disks and the seed. All are virtio disks, because the kernel of the
// image may support no other bus. cloud-init also finds a seed on a virtio disk.
func diskDevices(p parts, spec machine.Spec) []diskXML {
	var all []diskXML
	add := func(v volumeReference, format, serial string) *diskXML {
		all = append(all, diskXML{
			Type: "volume", Device: "disk", Driver: diskDriverXML{Name: "qemu", Type: format},
			Source: diskSourceXML{v.Pool, v.Name}, Target: targetXML{fmt.Sprintf("vd%c", 'a'+len(all)), "virtio"},
			Serial: serial,
		})
		return &all[len(all)-1]
	}
	root := add(p.root, "qcow2", partRoot)
	root.Boot, root.Driver.Discard = &bootXML{1}, "unmap"
	for i, v := range p.disks {
		add(v, "qcow2", spec.Disks[i].Name).Driver.Discard = "unmap"
	}
	if p.seed.Name != "" {
		add(p.seed, "raw", partSeed).ReadOnly = &struct{}{}
	}
	return all
}
