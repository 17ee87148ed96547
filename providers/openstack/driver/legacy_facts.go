package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/openstack/machine"
)

// facts contains the properties of an instance that Import needs.
type facts struct {
	Ports []portFacts `json:"ports,omitempty"`
}

type portFacts struct {
	// Suffix is the part of the port's name after the name of the server and a hyphen.
	Suffix         string                `json:"suffix,omitempty"`
	Network        string                `json:"network"`
	Subnets        []string              `json:"subnets,omitempty"`
	SecurityGroups []string              `json:"securityGroups,omitempty"`
	AddressPairs   []machine.AddressPair `json:"addressPairs,omitempty"`
}

// maxFactsBytes is the limit of the provider contract.
const maxFactsBytes = 8 << 10

// Locate implements provider.Importer. Old systems name a server after its Machine. Locate ignores servers whose
// metadata or tags name another cluster.
func (d *Driver) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	t, err := newTranslation(req.Legacy, nil)
	if err != nil {
		return nil, err
	}
	region := ""
	switch t.format {
	case provider.SourceOpenShift:
	case provider.SourceClusterAPI:
		region = cmp.Or(t.old.Object("machine").Object("identityRef").String("region"),
			t.old.Object("cluster").Object("identityRef").String("region"))
	default:
		region = t.description().String("region")
	}
	credentials := provider.NewCredentials(t.credentials).InNamespace(req.Legacy.Credentials.Namespace())
	c, err := d.clients(ctx, credentials, region)
	if err != nil {
		return nil, err
	}
	// This list may lack the ports of a server that is created during this call.
	allPorts, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{Limit: pageSize}), ports.ExtractPorts)
	if err != nil {
		return nil, translate(ctx, err, "list ports")
	}
	portsOf := map[string][]ports.Port{}
	for _, p := range allPorts {
		if !slices.ContainsFunc(portsOf[p.DeviceID], func(other ports.Port) bool { return other.ID == p.ID }) {
			portsOf[p.DeviceID] = append(portsOf[p.DeviceID], p)
		}
	}
	listed, err := allPages(ctx, c.compute, servers.List(c.compute, servers.ListOpts{Limit: pageSize}),
		servers.ExtractServers)
	if err != nil {
		return nil, translate(ctx, err, "list servers")
	}
	var found []provider.LocatedInstance
	seen := map[string]bool{}
	for i := range listed {
		s := &listed[i]
		if seen[s.ID] || s.Status == "DELETED" || !t.mayHaveCreated(s) {
			continue
		}
		seen[s.ID] = true
		in, err := c.convert(s)
		if err != nil {
			return nil, err
		}
		located := provider.LocatedInstance{Instance: *in, Machine: s.Name,
			MachineUID:  types.UID(s.Metadata[machineUIDKey]),
			IsCollected: len(roleKeysOf(s.Metadata)) > 0, Facts: factsOf(s.Name, portsOf[s.ID])}
		if s.Metadata[provider.TagCluster] == "" && s.Metadata[metaAdoptable] != "true" {
			located.NotAdoptable = "the server" + missingMark(s.ID)
		}
		found = append(found, located)
	}
	return found, nil
}

// mayHaveCreated reports whether the old system may have created a server. It compares the metadata and tags that
// name the cluster in the description.
func (t *translation) mayHaveCreated(s *servers.Server) bool {
	switch t.format {
	case provider.SourceGardener:
		for key := range t.description().Map("tags") {
			if _, found := s.Metadata[key]; strings.Contains(key, clusterKeys) && !found {
				return false
			}
		}
		return true
	case provider.SourceOpenShift:
		id := t.old.Map("serverMetadata")[openShiftClusterID]
		if actual, found := s.Metadata[openShiftClusterID]; found && id != "" && actual != id {
			return false
		}
		for _, tag := range t.old.Strings("tags") {
			if strings.HasPrefix(tag, openShiftClusterID+"=") && s.Tags != nil && !slices.Contains(*s.Tags, tag) {
				return false
			}
		}
		return true
	case provider.SourceClusterAPI:
		return true // Servers have no mark of their cluster.
	}
	return s.Metadata[machineUIDKey] != ""
}

// roleKeysOf returns the names of the metadata that the collector of machine.sapcloud.io looks for.
func roleKeysOf(metadata map[string]string) (keys []string) {
	for key := range metadata {
		if strings.Contains(strings.ToLower(key), roleKeys) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// factsOf sorts all lists: the plan of a migration must not depend on the order of Neutron's answers.
func factsOf(server string, all []ports.Port) []byte {
	var f facts
	for _, p := range all {
		known := portFacts{Network: p.NetworkID, SecurityGroups: sorted(p.SecurityGroups, strings.Compare)}
		known.Suffix, _ = strings.CutPrefix(p.Name, server+"-")
		for _, ip := range p.FixedIPs {
			known.Subnets = append(known.Subnets, ip.SubnetID)
		}
		known.Subnets = sorted(known.Subnets, strings.Compare)
		for _, pair := range p.AllowedAddressPairs {
			a := addressPair(pair.IPAddress)
			if pair.MACAddress != p.MACAddress { // Neutron sets the hardware address of the port by default.
				a.MACAddress = pair.MACAddress
			}
			known.AddressPairs = append(known.AddressPairs, a)
		}
		known.AddressPairs = sorted(known.AddressPairs, comparePairs)
		f.Ports = append(f.Ports, known)
	}
	slices.SortFunc(f.Ports, func(a, b portFacts) int {
		return cmp.Or(strings.Compare(a.Suffix, b.Suffix), strings.Compare(a.Network, b.Network),
			slices.Compare(a.Subnets, b.Subnets), slices.Compare(a.SecurityGroups, b.SecurityGroups),
			slices.CompareFunc(a.AddressPairs, b.AddressPairs, comparePairs))
	})
	raw, err := json.Marshal(f)
	if err != nil || len(raw) > maxFactsBytes {
		return nil // The user must then set the ports.
	}
	return raw
}

func comparePairs(a, b machine.AddressPair) int {
	return cmp.Or(strings.Compare(a.Address, b.Address), strings.Compare(a.MACAddress, b.MACAddress))
}

// sorted returns the different elements in ascending order.
func sorted[T comparable](all []T, compare func(a, b T) int) []T {
	return slices.Compact(slices.SortedFunc(slices.Values(all), compare))
}

// unnamedSubnets returns the subnets of a port that the description does not name by ID. read is reference or
// parameter.
func unnamedSubnets(known *portFacts, described []*legacy.Object,
	read func(*legacy.Object) (ref string, exact bool)) (all []string) {
	if known == nil {
		return nil
	}
	var named []string
	for _, o := range described {
		ref, _ := read(o)
		named = append(named, ref)
	}
	return slices.DeleteFunc(slices.Clone(known.Subnets), func(id string) bool { return slices.Contains(named, id) })
}
