package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

var _ provider.Finder = (*Driver)(nil)

// Find implements provider.Finder. It returns the servers of the project, as List does.
func (d *Driver) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, spec.Region)
	if err != nil {
		return nil, err
	}
	expected, err := c.expect(ctx, spec)
	if err != nil {
		return nil, err
	}
	listed, err := allPages(ctx, c.compute, servers.List(c.compute, servers.ListOpts{Limit: pageSize}),
		servers.ExtractServers)
	if err != nil {
		return nil, translate(ctx, err, "list servers")
	}
	// The list of ports comes last, so that it contains the ports of all listed servers.
	allPorts, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{Limit: pageSize}), ports.ExtractPorts)
	if err != nil {
		return nil, translate(ctx, err, "list ports")
	}
	networksOf := map[string][]string{}
	for _, p := range allPorts {
		if !slices.Contains(networksOf[p.DeviceID], p.NetworkID) {
			networksOf[p.DeviceID] = append(networksOf[p.DeviceID], p.NetworkID)
		}
	}
	var all []provider.FoundInstance
	seen := map[string]bool{}
	for i := range listed {
		s := &listed[i]
		if seen[s.ID] || s.Status == "DELETED" {
			continue
		}
		seen[s.ID] = true
		in, err := c.convert(s)
		if err != nil {
			return nil, err
		}
		found := provider.FoundInstance{Instance: *in, Name: s.Name, Metadata: s.Metadata,
			Networks:    slices.Concat(slices.Sorted(maps.Keys(s.Addresses)), networksOf[s.ID]),
			OtherSystem: otherSystem(s), Differences: expected.differences(s, networksOf[s.ID])}
		if s.Metadata[metaAdoptable] != "true" && in.ClusterID == "" {
			found.NotAdoptable = "the server" + missingMark(s.ID)
		}
		all = append(all, found)
	}
	return all, nil
}

// expectation contains the properties of servers that are created from a class now.
type expectation struct {
	zone, flavor, image string
	// networks contains sorted IDs.
	networks []string
}

// fromVolume stands for the image of a server that boots from a volume. Nova does not report the image of the volume.
const fromVolume = "an image on a volume"

func (c *clients) expect(ctx context.Context, spec machine.Spec) (e expectation, err error) {
	flavor, err := c.findFlavor(ctx, spec.Flavor)
	if err != nil {
		return e, err
	}
	e.zone, e.flavor, e.image = spec.AvailabilityZone, flavor.Name, fromVolume
	if spec.RootVolume == nil {
		image, err := c.findImage(ctx, spec.Image)
		if err != nil {
			return e, err
		}
		e.image = image.ID
	}
	for i, p := range spec.Ports {
		if p.Existing != "" {
			return e, provider.InvalidField(fmt.Sprintf("ports[%d].existing", i), "a class with an existing port is for a "+
				"single machine and cannot describe several servers")
		}
		id, err := c.networkID(ctx, fmt.Sprintf("ports[%d].network", i), p.Network)
		if err != nil {
			return e, err
		}
		if !slices.Contains(e.networks, id) {
			e.networks = append(e.networks, id)
		}
	}
	slices.Sort(e.networks)
	return e, nil
}

func (e expectation) differences(s *servers.Server, networks []string) []provider.Difference {
	flavor, _ := s.Flavor["original_name"].(string)
	image, _ := s.Image["id"].(string)
	if image == "" {
		image = fromVolume
	}
	zone := e.zone
	if zone == "" {
		zone = s.AvailabilityZone
	}
	return provider.Differing([]provider.Difference{
		{Field: "availabilityZone", Instance: s.AvailabilityZone, Class: zone},
		{Field: "flavor", Instance: flavor, Class: e.flavor},
		{Field: "image", Instance: image, Class: e.image},
		{Field: "ports", Instance: strings.Join(slices.Sorted(slices.Values(networks)), ", "),
			Class: strings.Join(e.networks, ", ")},
	}...)
}

// otherSystem returns which machine controller manages a server, or "".
func otherSystem(s *servers.Server) string {
	keys := slices.Collect(maps.Keys(s.Metadata))
	if s.Tags != nil {
		keys = append(keys, *s.Tags...)
	}
	system, key := legacy.SystemOf(keys)
	if system == "" {
		return ""
	}
	return fmt.Sprintf("%s (metadata or tag %.128s)", system, key)
}
