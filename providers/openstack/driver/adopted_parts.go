package driver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// hasPartsOfOtherSystem reports whether a server has the metadata or tags of a system that creates servers together
// with ports and volumes. These systems name the parts after the server, and delete them after the server. Nova
// deletes only the parts that it created itself.
func hasPartsOfOtherSystem(s *servers.Server) bool {
	return len(roleKeysOf(s.Metadata)) > 0 || s.Tags != nil && slices.Contains(*s.Tags, openShiftTag)
}

// claimParts marks the ports and volumes that another system created for an adopted server as parts of the owner. The
// driver then finds and deletes them when the server is gone.
func (c *clients) claimParts(ctx context.Context, s *servers.Server, own owner) error {
	if s.Metadata[metaParts] != "true" {
		return nil
	}
	isPart := func(name string) bool { return name == s.Name || strings.HasPrefix(name, s.Name+"-") }
	attached, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
	if err != nil {
		return translate(ctx, err, "list ports")
	}
	description := own.description()
	for _, p := range attached {
		if p.DeviceID != s.ID || !isPart(p.Name) || p.Description == description {
			continue
		}
		_, err := ports.Update(ctx, c.network, p.ID, ports.UpdateOpts{Description: &description}).Extract()
		if err != nil && !isAbsent(err) {
			return translate(ctx, err, "mark port "+p.ID+" as a part of server "+s.ID)
		}
	}
	if c.volume == nil {
		return nil
	}
	for _, a := range s.AttachedVolumes {
		v, err := volumes.Get(ctx, c.volume, a.ID).Extract()
		if err == nil && isPart(v.Name) && !own.owns(v.Metadata) {
			metadata := own.identity()
			maps.Copy(metadata, map[string]string{metaServer: s.Name})
			for name, text := range v.Metadata {
				if _, ours := metadata[name]; !ours {
					metadata[name] = text
				}
			}
			_, err = volumes.Update(ctx, c.volume, v.ID, volumes.UpdateOpts{Metadata: metadata}).Extract()
		}
		if err != nil && !isAbsent(err) {
			return translate(ctx, err, "mark volume "+a.ID+" as a part of server "+s.ID)
		}
	}
	return nil
}
