package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/tags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// Update implements provider.Driver. Metadata, tags and security groups change while the server runs. All else is
// another server.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	region, id, err := regionFor(req.ProviderID, req.Scope, req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, region)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	s, err := c.get(ctx, id)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	in, err := c.convert(s)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	if err := c.mine(s, in, own); err != nil {
		return provider.UpdateResult{}, err
	}
	if in.State == provider.StateTerminating {
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update server %s: it is being deleted", s.ID)
	}
	if reason := replacement(s, spec, req); reason != "" {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: reason, Instance: in}, nil
	}
	if err := c.updateGroups(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	if err := c.updateTags(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	// The metadata come last: they record which tags and metadata are the specification's.
	if err := c.updateMetadata(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	return provider.UpdateResult{Outcome: provider.UpdateDone, Instance: in}, nil
}

// replacement says why only another server will do, empty where this one will.
func replacement(s *servers.Server, spec machine.Spec, req provider.UpdateRequest) string {
	made, version := s.Metadata[metaSpec], s.Metadata[metaVersion]
	switch {
	case made != "" && made != specHash(spec):
		return "of a server only metadata, tags and security groups change in place"
	case req.Version != "" && version != "" && version != req.Version:
		return fmt.Sprintf("the kubelet was installed as version %.64s, and %.64s is wanted", version, req.Version)
	}
	return ""
}

// updateMetadata gives the server the specification's metadata, and takes those that it had from an earlier one.
// Metadata of others stay.
func (c *clients) updateMetadata(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	wanted := maps.Clone(spec.Metadata)
	if wanted == nil {
		wanted = map[string]string{}
	}
	own := map[string]string{metaNames: spec.MetadataNames(), metaTags: strings.Join(spec.SortedTags(), ",")}
	var drop []string
	for key, text := range own {
		if text != "" {
			wanted[key] = text
		} else if s.Metadata[key] != "" {
			drop = append(drop, key)
		}
	}
	for name := range strings.SplitSeq(s.Metadata[metaNames], ",") {
		if _, stays := spec.Metadata[name]; name != "" && !stays {
			drop = append(drop, name)
		}
	}
	attempted := "change the metadata of server " + s.ID
	for _, name := range drop {
		if _, there := s.Metadata[name]; !there {
			continue
		}
		if err := servers.DeleteMetadatum(ctx, c.compute, s.ID, name).ExtractErr(); err != nil && !absent(err) {
			return translate(ctx, err, attempted)
		}
	}
	maps.DeleteFunc(wanted, func(key, text string) bool { return s.Metadata[key] == text })
	if len(wanted) == 0 {
		return nil
	}
	if _, err := servers.UpdateMetadata(ctx, c.compute, s.ID, servers.MetadataOpts(wanted)).Extract(); err != nil {
		return translate(ctx, err, attempted)
	}
	return nil
}

// updateTags gives the server the specification's tags, and takes those that it had from an earlier one.
func (c *clients) updateTags(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	var has []string
	if s.Tags != nil {
		has = *s.Tags
	}
	attempted, wanted := "change the tags of server "+s.ID, spec.SortedTags()
	for tag := range strings.SplitSeq(s.Metadata[metaTags], ",") {
		if tag == "" || slices.Contains(wanted, tag) || !slices.Contains(has, tag) {
			continue
		}
		if err := tags.Delete(ctx, c.compute, s.ID, tag).ExtractErr(); err != nil && !absent(err) {
			return translate(ctx, err, attempted)
		}
	}
	for _, tag := range wanted {
		if slices.Contains(has, tag) {
			continue
		}
		if err := tags.Add(ctx, c.compute, s.ID, tag).ExtractErr(); err != nil {
			return translate(ctx, err, attempted)
		}
	}
	return nil
}

// updateGroups gives the ports that were made for the server their security groups. Ports of an adopted server, and
// existing ones, are left as they are.
func (c *clients) updateGroups(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	all, err := every(ctx, ports.List(c.network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
	if err != nil {
		return translate(ctx, err, "list ports")
	}
	for i, p := range spec.Ports {
		refs := spec.GroupsOf(p)
		if p.Existing != "" || open(p) || len(refs) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(is ports.Port) bool { return is.Name == portName(s.Name, i) })
		if at < 0 {
			continue
		}
		wanted, err := c.groupsOf(ctx, groupsField(p, i), refs)
		if err != nil {
			return err
		}
		has := slices.Sorted(slices.Values(all[at].SecurityGroups))
		if slices.Equal(has, wanted) {
			continue
		}
		_, err = ports.Update(ctx, c.network, all[at].ID, ports.UpdateOpts{SecurityGroups: &wanted}).Extract()
		if err != nil {
			return creating(ctx, err, "change the security groups of port "+all[at].ID, groupsField(p, i))
		}
	}
	return nil
}
