package driver

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

var _ provider.Finder = (*Driver)(nil)

// Find implements provider.Finder. It returns all domains of the hypervisor, as List does. The old system
// machine.openshift.io writes no metadata, so only the Nodes of its domains show that it manages them.
func (d *Driver) Find(ctx context.Context, req provider.FindRequest) (all []provider.FoundInstance, err error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		domains, err := h.listDomains(ctx, func(*domain) bool { return true }, anyDomain)
		if err != nil {
			return err
		}
		for _, domain := range domains {
			found, err := h.find(ctx, domain, &spec)
			if provider.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			all = append(all, found)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (h *hypervisor) find(ctx context.Context, d *domain, spec *machine.Spec) (provider.FoundInstance, error) {
	in, err := h.instance(ctx, d)
	if err != nil {
		return provider.FoundInstance{}, err
	}
	described, err := h.describe(ctx, d)
	if err != nil {
		return provider.FoundInstance{}, err
	}
	found := provider.FoundInstance{Instance: *in, Name: d.Name, Metadata: described.tags(),
		Networks: described.networks(), Differences: described.differences(spec)}
	if d.metadata.Cluster == "" && d.metadata.Adoptable != "true" {
		found.NotAdoptable = "the domain" + missingMark(in.ProviderID)
	}
	return found, nil
}

// differences compares a domain with a class.
func (x *description) differences(s *machine.Spec) []provider.Difference {
	disks := x.disks()
	all := []provider.Difference{
		{Field: "vcpus", Instance: strconv.Itoa(int(x.VCPUs)), Class: strconv.Itoa(int(s.VCPUs))},
		{Field: "memoryMiB", Instance: strconv.FormatInt(x.memoryMiB(), 10), Class: strconv.FormatInt(s.MemoryMiB, 10)},
		{Field: "domainType", Instance: x.Type, Class: s.DomainType},
		{Field: "architecture", Instance: x.architecture(), Class: s.Architecture},
		{Field: "firmware", Instance: x.firmware(), Class: s.Firmware},
		{Field: "kernel", Instance: yesNo(x.OS.Kernel != ""), Class: yesNo(s.Kernel != nil)},
		{Field: "networks", Instance: networkList(x.Interfaces), Class: wantedNetworks(s.Networks)},
		{Field: "disks", Instance: strconv.Itoa(max(0, len(disks)-1)), Class: strconv.Itoa(len(s.Disks))},
	}
	if len(disks) > 0 {
		// The base may itself be based on another image.
		if bases, known := disks[0].bases(); known && !slices.Contains(bases, s.Volume.Base) {
			base := provider.Difference{Field: "volume.base", Instance: "none", Class: s.Volume.Base}
			if len(bases) > 0 {
				base.Instance = bases[0]
			}
			if base.Class == "" {
				base.Class = "none"
			}
			all = append(all, base)
		}
	}
	return provider.Differing(all...)
}

func yesNo(claim bool) string {
	if claim {
		return "yes"
	}
	return "no"
}

func networkList(interfaces []describedInterface) string {
	var all []string
	for _, i := range interfaces {
		switch i.Type {
		case "network":
			all = append(all, "network "+i.Source.Network)
		case "bridge":
			all = append(all, "bridge "+i.Source.Bridge)
		default:
			all = append(all, strings.TrimSpace(i.Type+" "+i.Source.Dev))
		}
	}
	return sortedList(all)
}

func wantedNetworks(networks []machine.Network) string {
	var all []string
	for _, n := range networks {
		switch {
		case n.Network != "":
			all = append(all, "network "+n.Network)
		case n.Bridge != "":
			all = append(all, "bridge "+n.Bridge)
		default:
			all = append(all, "user")
		}
	}
	return sortedList(all)
}

func sortedList(all []string) string {
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(all)), ", ")
}
