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

// Update implements provider.Driver. Metadata, tags and security groups change while the server runs. All other changes
// require another server.
func (d *Driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return provider.UpdateResult{}, err
	}
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
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
	if err := c.checkOwner(s, in, own); err != nil {
		return provider.UpdateResult{}, err
	}
	if in.State == provider.StateTerminating {
		return provider.UpdateResult{}, provider.Errorf(provider.Aborted, "update server %s: the server is being deleted",
			s.ID)
	}
	if reason := replacementReason(s, spec, req); reason != "" {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: reason, Instance: in}, nil
	}
	if err := c.updateGroups(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	if err := c.updateTags(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	// Update the metadata of the server after its tags, because the metadata record the tags that the driver has set.
	if err := c.updateMetadata(ctx, s, spec); err != nil {
		return provider.UpdateResult{}, err
	}
	return provider.UpdateResult{Outcome: provider.UpdateDone, Instance: in}, nil
}

// replacementReason returns why the change requires a new server, or an empty string.
func replacementReason(s *servers.Server, spec machine.Spec, req provider.UpdateRequest) string {
	hash, version := s.Metadata[metaSpec], s.Metadata[metaVersion]
	switch {
	case hash != "" && hash != specHash(spec):
		return "only metadata, tags and security groups of a server can change in place"
	case req.Version != "" && version != "" && version != req.Version:
		return fmt.Sprintf("the kubelet was installed with version %.64s, but version %.64s is wanted", version, req.Version)
	}
	return ""
}

// updateMetadata sets the metadata of the specification. updateMetadata removes metadata that only an earlier
// specification contained. Other metadata do not change.
func (c *clients) updateMetadata(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	wanted := maps.Clone(spec.Metadata)
	if wanted == nil {
		wanted = map[string]string{}
	}
	records := map[string]string{metaNames: spec.MetadataNames(), metaTags: strings.Join(spec.SortedTags(), ",")}
	var removed []string
	for key, text := range records {
		if text != "" {
			wanted[key] = text
		} else if s.Metadata[key] != "" {
			removed = append(removed, key)
		}
	}
	for name := range strings.SplitSeq(s.Metadata[metaNames], ",") {
		if _, kept := spec.Metadata[name]; name != "" && !kept {
			removed = append(removed, name)
		}
	}
	attempted := "change the metadata of server " + s.ID
	for _, name := range removed {
		if _, found := s.Metadata[name]; !found {
			continue
		}
		if err := servers.DeleteMetadatum(ctx, c.compute, s.ID, name).ExtractErr(); err != nil && !isAbsent(err) {
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

// updateTags sets the tags of the specification and removes those of an earlier specification.
func (c *clients) updateTags(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	var current []string
	if s.Tags != nil {
		current = *s.Tags
	}
	attempted, wanted := "change the tags of server "+s.ID, spec.SortedTags()
	for tag := range strings.SplitSeq(s.Metadata[metaTags], ",") {
		if tag == "" || slices.Contains(wanted, tag) || !slices.Contains(current, tag) {
			continue
		}
		if err := tags.Delete(ctx, c.compute, s.ID, tag).ExtractErr(); err != nil && !isAbsent(err) {
			return translate(ctx, err, attempted)
		}
	}
	for _, tag := range wanted {
		if slices.Contains(current, tag) {
			continue
		}
		if err := tags.Add(ctx, c.compute, s.ID, tag).ExtractErr(); err != nil {
			return translate(ctx, err, attempted)
		}
	}
	return nil
}

// updateGroups sets the security groups of the ports that were created for the server. Existing ports and the ports of
// an adopted server do not change.
func (c *clients) updateGroups(ctx context.Context, s *servers.Server, spec machine.Spec) error {
	all, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
	if err != nil {
		return translate(ctx, err, "list ports")
	}
	for i, p := range spec.Ports {
		refs := spec.GroupsOf(p)
		if p.Existing != "" || unfiltered(p) || len(refs) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(port ports.Port) bool { return port.Name == portName(s.Name, i) })
		if at < 0 {
			continue
		}
		wanted, err := c.securityGroupIDs(ctx, groupsField(p, i), refs)
		if err != nil {
			return err
		}
		current := slices.Sorted(slices.Values(all[at].SecurityGroups))
		if slices.Equal(current, wanted) {
			continue
		}
		_, err = ports.Update(ctx, c.network, all[at].ID, ports.UpdateOpts{SecurityGroups: &wanted}).Extract()
		if err != nil {
			return createError(ctx, err, "change the security groups of port "+all[at].ID, groupsField(p, i))
		}
	}
	return nil
}
