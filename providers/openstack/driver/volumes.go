package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/attachments"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
)

// wantedVolume is a volume to make for a server.
type wantedVolume struct {
	name, field string
	options     volumes.CreateOpts
}

// wantedVolumes are those of an order, the root volume first.
func (o *order) wantedVolumes() []wantedVolume {
	var all []wantedVolume
	metadata := o.own.identity()
	metadata[metaServer] = o.name
	add := func(name, field string, v machine.Volume, image string) {
		all = append(all, wantedVolume{name: volumeName(o.name, name), field: field, options: volumes.CreateOpts{
			Name: volumeName(o.name, name), Size: int(v.SizeGiB), VolumeType: v.Type, AvailabilityZone: v.AvailabilityZone,
			Metadata: metadata, ImageID: image,
		}})
	}
	if root := o.spec.RootVolume; root != nil {
		add(machine.RootVolumeName, "rootVolume", machine.Volume{SizeGiB: root.SizeGiB, Type: root.Type,
			AvailabilityZone: root.AvailabilityZone}, o.image)
	}
	for i, v := range o.spec.Volumes {
		add(v.Name, fmt.Sprintf("volumes[%d]", i), v, "")
	}
	return all
}

// volumesOf are all volumes of an owner, of whichever attempt. Without Cinder there are none.
func (c *clients) volumesOf(ctx context.Context, own owner) ([]volumes.Volume, error) {
	if c.volume == nil {
		return nil, nil
	}
	all, err := every(ctx, volumes.List(c.volume, volumes.ListOpts{Metadata: map[string]string{
		provider.TagMachineUID: string(own.machine.UID)}}), volumes.ExtractVolumes)
	if err != nil {
		return nil, translate(ctx, err, "list volumes")
	}
	// Metadata that a filter does not know it ignores.
	return slices.DeleteFunc(all, func(v volumes.Volume) bool { return !own.owns(v.Metadata) }), nil
}

// volumePoll is how often a volume is asked about that is being made.
const volumePoll = time.Second

// readyVolumes makes the volumes of an order that are not there, and waits until all are available. It returns their
// IDs.
func (c *clients) readyVolumes(ctx context.Context, o *order) ([]string, error) {
	wanted := o.wantedVolumes()
	if len(wanted) == 0 {
		return nil, nil
	}
	if err := c.needsVolumes(wanted[0].field); err != nil {
		return nil, err
	}
	there, err := c.volumesOf(ctx, o.own)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(wanted))
	for i, w := range wanted {
		for _, v := range there {
			if v.Name == w.name && v.Status != "deleting" {
				ids[i] = v.ID
			}
		}
		if ids[i] != "" {
			continue
		}
		made, err := volumes.Create(ctx, c.volume, w.options, nil).Extract()
		if err != nil {
			return nil, creating(ctx, err, "create volume "+w.name, w.field)
		}
		ids[i] = made.ID
	}
	for i, w := range wanted {
		if err := c.awaitVolume(ctx, ids[i], w); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// awaitVolume waits until a volume can be attached. One that cannot be made, or that an earlier creation of the server
// has reserved and does not use, is removed: the next try makes another.
func (c *clients) awaitVolume(ctx context.Context, id string, w wantedVolume) error {
	attempted := "create volume " + w.name
	for {
		v, err := volumes.Get(ctx, c.volume, id).Extract()
		if absent(err) {
			return provider.Errorf(provider.Aborted, "%s: it is gone", attempted)
		}
		if err != nil {
			return creating(ctx, err, attempted, w.field)
		}
		switch {
		case v.Status == "available":
			return nil
		case strings.HasPrefix(v.Status, "error"):
			if _, err := c.removeVolume(ctx, v); err != nil {
				return err
			}
			return provider.Errorf(provider.Internal, "%s: Cinder could not make it (%s); another is made", attempted, v.Status)
		case v.Status == "reserved", v.Status == "attaching", v.Status == "in-use", v.Status == "detaching":
			if _, err := c.removeVolume(ctx, v); err != nil {
				return err
			}
			return provider.Errorf(provider.Aborted, "%s: it is %s for a server that was not made; another is made", attempted,
				v.Status)
		}
		if err := pause(ctx, volumePoll); err != nil {
			return translate(ctx, err, attempted+", which is "+v.Status)
		}
	}
}

// removeVolumes asks for the deletion of volumes, except those that a server has, and returns what is left.
func (c *clients) removeVolumes(ctx context.Context, all []volumes.Volume, servers *presence) (left []string,
	err error) {
	for i := range all {
		v := &all[i]
		used := false
		for _, a := range v.Attachments {
			has, err := servers.exists(ctx, a.ServerID)
			if err != nil {
				return nil, err
			}
			used = used || has
		}
		if used {
			continue
		}
		refused := ""
		if v.Status != "deleting" {
			if refused, err = c.removeVolume(ctx, v); err != nil {
				return nil, err
			}
		}
		left = append(left, "volume "+v.ID+" ("+v.Status+")"+refused)
	}
	return left, nil
}

// removeVolume removes a volume that no server has. A creation of a server that Nova refused, or a server whose host
// was lost, leaves it reserved or attached for ever: the attachments go first. If its state does not allow the deletion
// now, such as while it has snapshots, the answer is returned, and the next call tries again.
func (c *clients) removeVolume(ctx context.Context, v *volumes.Volume) (refused string, err error) {
	if v.Status != "available" && !strings.HasPrefix(v.Status, "error") {
		all, err := every(ctx, attachments.List(c.volume, attachments.ListOpts{VolumeID: v.ID}),
			attachments.ExtractAttachments)
		if err != nil {
			return "", translate(ctx, err, "list the attachments of volume "+v.ID)
		}
		for _, a := range all {
			if err := attachments.Delete(ctx, c.volume, a.ID).ExtractErr(); err != nil && !absent(err) && !busy(err) {
				return "", translate(ctx, err, "delete an attachment of volume "+v.ID)
			}
		}
	}
	err = volumes.Delete(ctx, c.volume, v.ID, volumes.DeleteOpts{}).ExtractErr()
	switch {
	case err == nil, absent(err):
		return "", nil
	case busy(err):
		return inItsWords(err), nil
	}
	return "", translate(ctx, err, "delete volume "+v.ID)
}

// busy reports whether Cinder has answered that a volume's state does not allow it now: 400, or 409 since 2023.
func busy(err error) bool {
	a, ok := answerOf(err)
	return ok && (a.status == 400 || a.status == 409)
}
