package driver

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/providers/openstack/machine"
)

// clusterAPIDescription begins the description of a port that Cluster API or OpenShift created, unless the old object
// sets another description.
const clusterAPIDescription = "Created by cluster-api-provider-openstack"

// csiKeys begins the names of the metadata of a volume that the CSI driver created.
const csiKeys = "cinder.csi.openstack.org/"

// hasPartsOfOtherSystem reports whether a server has the metadata, the tags or a port of a system that creates servers
// together with ports and volumes. These systems name the parts after the server, and delete them after the server.
// Nova deletes only the parts that it created itself. Servers of Cluster API have no mark, so the ports decide.
func (c *clients) hasPartsOfOtherSystem(ctx context.Context, s *servers.Server) (bool, error) {
	if len(roleKeysOf(s.Metadata)) > 0 || s.Tags != nil && slices.Contains(*s.Tags, openShiftTag) {
		return true, nil
	}
	attached, err := c.attachedPorts(ctx, s)
	return slices.ContainsFunc(attached, func(p ports.Port) bool {
		suffix, after := strings.CutPrefix(p.Name, s.Name+"-")
		_, err := strconv.ParseUint(suffix, 10, 16)
		return p.Name == s.Name || after && (err == nil || strings.HasPrefix(p.Description, clusterAPIDescription))
	}), err
}

func (c *clients) attachedPorts(ctx context.Context, s *servers.Server) ([]ports.Port, error) {
	attached, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
	if err != nil {
		return nil, translate(ctx, err, "list ports")
	}
	// Neutron may ignore the filter.
	return slices.DeleteFunc(attached, func(p ports.Port) bool { return p.DeviceID != s.ID }), nil
}

// isRootVolume reports whether another system created the volume for the server, and only this server uses the volume.
// Gardener names it after the server. OpenShift and Cluster API add the suffix of a root volume. A longer name may
// belong to a user's volume.
func isRootVolume(v *volumes.Volume, s *servers.Server) bool {
	for key := range v.Metadata {
		if strings.HasPrefix(key, csiKeys) {
			return false
		}
	}
	return len(v.Attachments) <= 1 && (v.Name == s.Name || v.Name == volumeName(s.Name, machine.RootVolumeName))
}

// claimParts marks the ports and root volume that another system created for an adopted server as parts of the
// owner. The driver then finds and deletes them when the server is gone.
func (c *clients) claimParts(ctx context.Context, s *servers.Server, own owner) error {
	if s.Metadata[metaParts] != "true" {
		return nil
	}
	attached, err := c.attachedPorts(ctx, s)
	if err != nil {
		return err
	}
	description := own.description()
	for _, p := range attached {
		isPart := p.Name == s.Name || strings.HasPrefix(p.Name, s.Name+"-")
		if !isPart || p.Description == description {
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
		if err == nil && isRootVolume(v, s) && !own.owns(v.Metadata) {
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
