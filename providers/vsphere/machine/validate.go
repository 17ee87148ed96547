package machine

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxPathCharacters = 1024
	maxNameCharacters = 80
	maxNetworks       = 10
	maxCPUs           = 768
	maxMemoryMiB      = 24 << 20
	maxDiskGiB        = 62 << 10
	// maxDisks leaves two of the 15 places on one SCSI controller to the template.
	maxDisks      = 13
	maxVGPUs      = 4
	maxPCIDevices = 16
)

func (s *Spec) validate() error {
	checks := []func() error{
		func() error { return s.Location().validate() },
		func() error { return requiredPath("template", s.Template) },
		func() error { return requiredPath("cluster", s.Cluster) },
		func() error { return optionalPath("resourcePool", s.ResourcePool) },
		s.validateDatastore,
		s.validateNetworks,
		s.validateHardware,
		s.validateDevices,
		func() error { return topologyName("region", s.Region) },
		func() error { return topologyName("zone", s.Zone) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (l Location) validate() error {
	if err := checkVCenter(l.VCenter); err != nil {
		return err
	}
	if err := requiredPath("datacenter", l.Datacenter); err != nil {
		return err
	}
	return requiredPath("folder", l.Folder)
}

// checkVCenter refuses a name that cannot be in the flag of the provider and in the scope of an instance.
func checkVCenter(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return provider.InvalidField("vcenter",
			"%.64q is not a name in the flag --vsphere-vcenter: a DNS label, and not the address of a server", name)
	}
	return nil
}

func requiredPath(field, path string) error {
	if path == "" {
		return provider.InvalidField(field, "is required")
	}
	return optionalPath(field, path)
}

func optionalPath(field, path string) error {
	if utf8.RuneCountInString(path) > maxPathCharacters || !printable(path) {
		return provider.InvalidField(field, "%.64q is longer than %d characters or not printable", path, maxPathCharacters)
	}
	if path == "" {
		return nil
	}
	for element := range strings.SplitSeq(path, "/") {
		switch {
		case element == "":
			return provider.InvalidField(field, "%.64q begins or ends with a slash, or contains two slashes in a row", path)
		case utf8.RuneCountInString(element) > maxNameCharacters:
			return provider.InvalidField(field, "%.64q has a name of more than %d characters", path, maxNameCharacters)
		}
	}
	return nil
}

func (s *Spec) validateDatastore() error {
	if (s.Datastore == "") == (s.DatastoreCluster == "") {
		return provider.InvalidField("datastore", "set exactly one of datastore and datastoreCluster")
	}
	if err := optionalPath("datastore", s.Datastore); err != nil {
		return err
	}
	return optionalPath("datastoreCluster", s.DatastoreCluster)
}

func (s *Spec) validateNetworks() error {
	if n := len(s.Networks); n < 1 || n > maxNetworks {
		return provider.InvalidField("networks", "has %d entries, not 1 to %d", n, maxNetworks)
	}
	for i, n := range s.Networks {
		at := fmt.Sprintf("networks[%d].", i)
		if err := requiredPath(at+"path", n.Path); err != nil {
			return err
		}
		if n.Address != "" {
			return provider.InvalidField(at+"address", "static addresses are not supported, because all virtual machines of a "+
				"class would get the same address; remove the field and use DHCP")
		}
		if adapters := []string{"vmxnet3", "e1000e", "sriov"}; n.Adapter != "" && !slices.Contains(adapters, n.Adapter) {
			return provider.InvalidField(at+"adapter", "%.64q is not one of %s", n.Adapter, strings.Join(adapters, ", "))
		}
	}
	return nil
}

func (s *Spec) validateHardware() error {
	switch {
	case s.CPUs < 1 || s.CPUs > maxCPUs:
		return provider.InvalidField("cpus", "%d is not between 1 and %d", s.CPUs, maxCPUs)
	case s.CoresPerSocket < 0 || s.CoresPerSocket > 0 && s.CPUs%s.CoresPerSocket != 0:
		return provider.InvalidField("coresPerSocket", "%d is not a divisor of the %d cpus", s.CoresPerSocket, s.CPUs)
	case s.MemoryMiB < 4 || s.MemoryMiB > maxMemoryMiB || s.MemoryMiB%4 != 0:
		return provider.InvalidField("memoryMiB", "%d is not a multiple of 4 between 4 and %d", s.MemoryMiB, maxMemoryMiB)
	case s.RootDiskGiB < 0 || s.RootDiskGiB > maxDiskGiB:
		return provider.InvalidField("rootDiskGiB", "%d is not between 0 and %d", s.RootDiskGiB, maxDiskGiB)
	case s.RootDiskGiB > 0 && s.LinkedClone:
		return provider.InvalidField("rootDiskGiB",
			"the disk of a linked clone cannot grow; remove rootDiskGiB or linkedClone")
	case len(s.Disks) > maxDisks:
		return provider.InvalidField("disks", "has %d entries, more than %d", len(s.Disks), maxDisks)
	}
	for i, d := range s.Disks {
		if d.SizeGiB < 1 || d.SizeGiB > maxDiskGiB {
			return provider.InvalidField(fmt.Sprintf("disks[%d].sizeGiB", i), "%d is not between 1 and %d", d.SizeGiB,
				maxDiskGiB)
		}
	}
	return nil
}

func (s *Spec) validateDevices() error {
	if len(s.VGPUProfiles) > maxVGPUs {
		return provider.InvalidField("vgpuProfiles", "has %d entries, more than %d", len(s.VGPUProfiles), maxVGPUs)
	}
	for i, profile := range s.VGPUProfiles {
		if at := fmt.Sprintf("vgpuProfiles[%d]",
			i); profile == "" || len(profile) > maxNameCharacters || !printable(profile) {
			return provider.InvalidField(at, "%.64q is empty, longer than %d bytes or not printable", profile, maxNameCharacters)
		}
	}
	if len(s.PCIDevices) > maxPCIDevices {
		return provider.InvalidField("pciDevices", "has %d entries, more than %d", len(s.PCIDevices), maxPCIDevices)
	}
	for i, d := range s.PCIDevices {
		at := fmt.Sprintf("pciDevices[%d].", i)
		if d.VendorID < 1 || d.VendorID > 0xffff {
			return provider.InvalidField(at+"vendorID", "%d is not between 1 and %d", d.VendorID, 0xffff)
		}
		if d.DeviceID < 1 || d.DeviceID > 0xffff {
			return provider.InvalidField(at+"deviceID", "%d is not between 1 and %d", d.DeviceID, 0xffff)
		}
	}
	return nil
}

// topologyName refuses a name that cannot be the value of a label of a Node. An empty name is accepted.
func topologyName(field, name string) error {
	if len(validation.IsValidLabelValue(name)) > 0 {
		return provider.InvalidField(field, "%.64q is not a valid value of a label", name)
	}
	return nil
}

// printable reports whether the text can be shown and stored. unicode.ReplacementChar indicates invalid UTF-8.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
