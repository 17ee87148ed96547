package machine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxVCPUs         = 512
	minMemoryMiB     = 64
	maxMemoryMiB     = 16 << 20
	maxSizeGiB       = 64 << 10
	maxDisks         = 16
	maxDiskName      = 16
	maxNetworks      = 8
	maxNameBytes     = 128
	maxBridgeBytes   = 15 // limit of interface names in Linux
	maxZoneBytes     = 63 // limit of label values
	maxNetworkConfig = 16 << 10
	maxCommandLine   = 2048
)

var (
	diskFormat  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	nameFormat  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]*$`)
	labelFormat = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// validate returns the first error.
func (s *Spec) validate() error {
	for _, check := range []func() error{
		func() error { return checkRange("vcpus", int64(s.VCPUs), 1, maxVCPUs) },
		func() error { return checkRange("memoryMiB", s.MemoryMiB, minMemoryMiB, maxMemoryMiB) },
		s.validateCPU,
		func() error { return oneOf("domainType", s.DomainType, DomainKVM, DomainQEMU) },
		func() error { return oneOf("architecture", s.Architecture, ArchitectureAMD64, ArchitectureARM64) },
		func() error { return checkWord("machineType", s.MachineType, maxNameBytes) },
		func() error { return oneOf("firmware", s.Firmware, FirmwareBIOS, FirmwareUEFI) },
		s.validateKernel,
		s.validateVolume,
		s.validateDisks,
		s.validateNetworks,
		func() error { return oneOf("addressSource", s.AddressSource, AddressSourceLease, AddressSourceAgent) },
		func() error { return optionalName("seedPool", s.SeedPool) },
		s.validateNetworkConfig,
		s.validateZone,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateCPU() error {
	c := s.CPU
	if c == nil {
		return nil
	}
	if err := oneOf("cpu.mode", c.Mode, CPUPassthrough, CPUHostModel, CPUMaximum, CPUCustom); err != nil {
		return err
	}
	switch custom := c.Mode == "" || c.Mode == CPUCustom; {
	case custom && c.Model == "":
		return provider.InvalidField("cpu.model", "is required with the mode %q: set the name of a processor", CPUCustom)
	case !custom && c.Model != "":
		return provider.InvalidField("cpu.model", "%.64q is only allowed with the mode %q, not with %q", c.Model, CPUCustom,
			c.Mode)
	}
	if (c.Mode == CPUPassthrough || c.Mode == CPUHostModel) && s.DomainType == DomainQEMU {
		return provider.InvalidField("cpu.mode", "%q requires the domainType %q, not %q", c.Mode, DomainKVM, DomainQEMU)
	}
	return checkWord("cpu.model", c.Model, maxNameBytes)
}

func (s *Spec) validateKernel() error {
	k := s.Kernel
	if k == nil {
		return nil
	}
	if k.Image == "" {
		return provider.InvalidField("kernel.image", "is required: set the name of a volume")
	}
	for _, f := range []struct{ field, name string }{
		{"kernel.pool", k.Pool}, {"kernel.image", k.Image}, {"kernel.initrd", k.Initrd},
	} {
		if err := imageName(f.field, f.name); err != nil {
			return err
		}
	}
	if len(k.CommandLine) > maxCommandLine || !printable(k.CommandLine) {
		return provider.InvalidField("kernel.commandLine", "%.64q is longer than %d bytes or not printable", k.CommandLine,
			maxCommandLine)
	}
	return nil
}

func (s *Spec) validateVolume() error {
	v := s.Volume
	if v.Pool == "" {
		return provider.InvalidField("volume.pool", "is required: set the name of a storage pool")
	}
	for _, f := range []struct{ field, name string }{
		{"volume.pool", v.Pool}, {"volume.base", v.Base}, {"volume.basePool", v.BasePool},
	} {
		if err := imageName(f.field, f.name); err != nil {
			return err
		}
	}
	if v.BasePool != "" && v.Base == "" {
		return provider.InvalidField("volume.basePool", "%.64q is only allowed if volume.base is set", v.BasePool)
	}
	return checkRange("volume.sizeGiB", v.SizeGiB, 1, maxSizeGiB)
}

func (s *Spec) validateDisks() error {
	if len(s.Disks) > maxDisks {
		return provider.InvalidField("disks", "has %d entries, more than %d", len(s.Disks), maxDisks)
	}
	seen := map[string]bool{}
	for i, d := range s.Disks {
		at := fmt.Sprintf("disks[%d].", i)
		switch {
		case d.Name == "":
			return provider.InvalidField(at+"name", "is required")
		case len(d.Name) > maxDiskName || !diskFormat.MatchString(d.Name):
			return provider.InvalidField(at+"name", "%.64q is not 1 to %d lower-case letters, digits and inner hyphens",
				d.Name, maxDiskName)
		case seen[d.Name]:
			return provider.InvalidField(at+"name", "%q is used twice", d.Name)
		}
		seen[d.Name] = true
		if err := optionalName(at+"pool", d.Pool); err != nil {
			return err
		}
		if err := checkRange(at+"sizeGiB", d.SizeGiB, 1, maxSizeGiB); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateNetworks() error {
	if n := len(s.Networks); n < 1 || n > maxNetworks {
		return provider.InvalidField("networks", "has %d entries, not 1 to %d", n, maxNetworks)
	}
	for i, n := range s.Networks {
		at := fmt.Sprintf("networks[%d]", i)
		count := 0
		for _, set := range []bool{n.Network != "", n.Bridge != "", n.User} {
			if set {
				count++
			}
		}
		if count != 1 {
			return provider.InvalidField(at, "requires exactly one of network, bridge and user, not %d", count)
		}
		if err := optionalName(at+".network", n.Network); err != nil {
			return err
		}
		if err := checkWord(at+".bridge", n.Bridge, maxBridgeBytes); err != nil {
			return err
		}
		if err := oneOf(at+".model", n.Model, "virtio", "e1000", "e1000e", "rtl8139"); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateNetworkConfig() error {
	text := s.NetworkConfig
	visible := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxNetworkConfig || !printable(visible) {
		return provider.InvalidField("networkConfig", "must be text of at most %d bytes; it has %d bytes",
			maxNetworkConfig, len(text))
	}
	return nil
}

func (s *Spec) validateZone() error {
	if s.Zone != "" && (len(s.Zone) > maxZoneBytes || !labelFormat.MatchString(s.Zone)) {
		return provider.InvalidField("zone", "%.64q is not a valid label value: at most %d letters, digits, '-', '_' and '.'",
			s.Zone, maxZoneBytes)
	}
	return nil
}

func checkRange(field string, n, least, most int64) error {
	if n < least || n > most {
		return provider.InvalidField(field, "%d is not between %d and %d", n, least, most)
	}
	return nil
}

// oneOf also accepts an empty value.
func oneOf(field, value string, all ...string) error {
	if value != "" && !slices.Contains(all, value) {
		return provider.InvalidField(field, "%.64q is not one of %s", value, strings.Join(all, ", "))
	}
	return nil
}

// checkWord accepts letters, digits, hyphens, underscores and dots, or an empty value.
func checkWord(field, value string, limit int) error {
	if value != "" && (len(value) > limit || !nameFormat.MatchString(value)) {
		return provider.InvalidField(field, "%.64q is not 1 to %d letters, digits, '-', '_' and '.'", value, limit)
	}
	return nil
}

// optionalName accepts the name of a libvirt object, or an empty value. A slash would turn the name into a path.
func optionalName(field, name string) error {
	if name == "" {
		return nil
	}
	if len(name) > maxNameBytes || !printable(name) || strings.Contains(name, "/") || name == "." || name == ".." {
		return provider.InvalidField(field, "%.64q is not a name of at most %d printable characters without a slash", name,
			maxNameBytes)
	}
	return nil
}

// imageName refuses the volumes of machines, because their seeds contain secrets.
func imageName(field, name string) error {
	if strings.HasPrefix(name, VolumePrefix) {
		return provider.InvalidField(field, "%.64q is the name of a machine's volume, which others must not read", name)
	}
	return optionalName(field, name)
}

// printable reports whether the text can be shown and stored. unicode.ReplacementChar indicates invalid UTF-8.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
