package driver

import (
	"context"
	"encoding/xml"
	"path"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// description is the part of a domain's XML that the driver reads from domains of any origin.
// https://libvirt.org/formatdomain.html
type description struct {
	Type        string `xml:"type,attr"`
	Title       string `xml:"title"`
	Description string `xml:"description"`
	Metadata    struct {
		Elements []metadataElement `xml:",any"`
	} `xml:"metadata"`
	Memory memoryXML `xml:"memory"`
	VCPUs  int32     `xml:"vcpu"`
	OS     struct {
		Firmware string `xml:"firmware,attr"`
		Type     struct {
			Arch string `xml:"arch,attr"`
		} `xml:"type"`
		Loader struct {
			Type string `xml:"type,attr"`
		} `xml:"loader"`
		Kernel string `xml:"kernel"`
	} `xml:"os"`
	Disks      []describedDisk      `xml:"devices>disk"`
	Interfaces []describedInterface `xml:"devices>interface"`
}

type metadataElement struct {
	XMLName    xml.Name
	Attributes []xml.Attr `xml:",any,attr"`
	Text       string     `xml:",chardata"`
}

type describedDisk struct {
	Device  string        `xml:"device,attr"`
	Serial  string        `xml:"serial"`
	Backing *backingStore `xml:"backingStore"`
}

// backingStore is an image that a disk stores only the differences to. libvirt reports it for running domains. The
// last backingStore of a chain has no source.
type backingStore struct {
	Source struct {
		File   string `xml:"file,attr"`
		Dev    string `xml:"dev,attr"`
		Volume string `xml:"volume,attr"`
		Name   string `xml:"name,attr"`
	} `xml:"source"`
	Next *backingStore `xml:"backingStore"`
}

type describedInterface struct {
	Type   string `xml:"type,attr"`
	MAC    macXML `xml:"mac"`
	Source struct {
		Network string `xml:"network,attr"`
		Bridge  string `xml:"bridge,attr"`
		Dev     string `xml:"dev,attr"`
	} `xml:"source"`
}

// describe reads the XML of a domain.
func (h *hypervisor) describe(ctx context.Context, d *domain) (*description, error) {
	attempted := "read domain " + providerID(d.UUID)
	text, err := h.DomainGetXMLDesc(d.Domain, 0)
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	described := &description{}
	if err := xml.Unmarshal([]byte(text), described); err != nil {
		return nil, provider.Errorf(provider.Internal, "%s: the domain's XML cannot be read", attempted)
	}
	return described, nil
}

// architecture returns the architecture in the words of the providerSpec.
func (x *description) architecture() string {
	return map[string]string{"x86_64": machine.ArchitectureAMD64, "aarch64": machine.ArchitectureARM64}[x.OS.Type.Arch]
}

// memoryMiB returns the memory, which libvirt reports in KiB.
func (x *description) memoryMiB() int64 { return x.Memory.Value >> 10 }

func (x *description) firmware() string {
	if x.OS.Firmware == "efi" || x.OS.Loader.Type == "pflash" {
		return machine.FirmwareUEFI
	}
	return machine.FirmwareBIOS
}

// tags returns the title, the description and the elements in the metadata. An element has the key NAME for its
// text, and NAME.ATTRIBUTE for each attribute, without the prefix of its namespace. If two elements have the same
// key, the first one counts.
func (x *description) tags() map[string]string {
	all := map[string]string{}
	add := func(key, value string) {
		if _, taken := all[key]; value != "" && !taken {
			all[key] = value
		}
	}
	add("title", strings.TrimSpace(x.Title))
	add("description", strings.TrimSpace(x.Description))
	for _, element := range x.Metadata.Elements {
		name := element.XMLName.Local
		add(name, strings.TrimSpace(element.Text))
		for _, attribute := range element.Attributes {
			if attribute.Name.Space != "xmlns" && attribute.Name.Local != "xmlns" {
				add(name+"."+attribute.Name.Local, attribute.Value)
			}
		}
	}
	return all
}

// networks returns the names of the networks, bridges and devices of the hypervisor to which the domain is
// connected.
func (x *description) networks() (all []string) {
	for _, i := range x.Interfaces {
		for _, name := range []string{i.Source.Network, i.Source.Bridge, i.Source.Dev} {
			if name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// disks returns the disks except the one with the user data, and except drives with exchangeable media. The first
// disk is the root disk.
func (x *description) disks() []describedDisk {
	return slices.DeleteFunc(slices.Clone(x.Disks), func(d describedDisk) bool {
		return d.Device != "" && d.Device != "disk" || d.Serial == partSeed
	})
}

// bases returns the names of the images that a disk is based on. known is false if libvirt does not report them.
func (d *describedDisk) bases() (names []string, known bool) {
	for b := d.Backing; b != nil; b = b.Next {
		known = true
		for _, name := range []string{b.Source.File, b.Source.Dev, b.Source.Volume, b.Source.Name} {
			if name != "" {
				names = append(names, path.Base(name))
				break
			}
		}
	}
	return names, known
}
