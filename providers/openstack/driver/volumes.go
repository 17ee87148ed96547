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

type wantedVolume struct {
	name, field string
	options     volumes.CreateOpts
}

// wantedVolumes returns the volumes of a server, the root volume first.
func (r *serverRequest) wantedVolumes() []wantedVolume {
	var all []wantedVolume
	metadata := r.own.identity()
	metadata[metaServer] = r.name
	add := func(name, field string, v machine.Volume, image string) {
		all = append(all, wantedVolume{name: volumeName(r.name, name), field: field, options: volumes.CreateOpts{
			Name: volumeName(r.name, name), Size: int(v.SizeGiB), VolumeType: v.Type, AvailabilityZone: v.AvailabilityZone,
			Metadata: metadata, ImageID: image,
		}})
	}
	if root := r.spec.RootVolume; root != nil {
		add(machine.RootVolumeName, "rootVolume", machine.Volume{SizeGiB: root.SizeGiB, Type: root.Type,
			AvailabilityZone: root.AvailabilityZone}, r.image)
	}
	for i, v := range r.spec.Volumes {
		add(v.Name, fmt.Sprintf("volumes[%d]", i), v, "")
	}
	return all
}

// volumesOf returns the owner's volumes of all attempts. Without Cinder, the result is empty.
func (c *clients) volumesOf(ctx context.Context, own owner) ([]volumes.Volume, error) {
	if c.volume == nil {
		return nil, nil
	}
	all, err := allPages(ctx, c.volume, volumes.List(c.volume, volumes.ListOpts{Metadata: map[string]string{
		provider.TagMachineUID: string(own.machine.UID)}}), volumes.ExtractVolumes)
	if err != nil {
		return nil, translate(ctx, err, "list volumes")
	}
	// Cinder may ignore the filter.
	return slices.DeleteFunc(all, func(v volumes.Volume) bool { return !own.owns(v.Metadata) }), nil
}

const volumePoll = time.Second

// ensureVolumes creates missing volumes, waits until all are available, and returns their IDs.
func (c *clients) ensureVolumes(ctx context.Context, r *serverRequest) ([]string, error) {
	wanted := r.wantedVolumes()
	if len(wanted) == 0 {
		return nil, nil
	}
	if err := c.requireVolumeService(wanted[0].field); err != nil {
		return nil, err
	}
	existing, err := c.volumesOf(ctx, r.own)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(wanted))
	for i, w := range wanted {
		for _, v := range existing {
			if v.Name == w.name && v.Status != "deleting" {
				ids[i] = v.ID
			}
		}
		if ids[i] != "" {
			continue
		}
		created, err := volumes.Create(ctx, c.volume, w.options, nil).Extract()
		if err != nil {
			return nil, createError(ctx, err, "create volume "+w.name, w.field)
		}
		ids[i] = created.ID
	}
	for i, w := range wanted {
		if err := c.awaitVolume(ctx, ids[i], w); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// awaitVolume waits until a volume can be attached. awaitVolume deletes a volume whose creation failed, or that is
// reserved for an earlier server. The next attempt creates another volume.
func (c *clients) awaitVolume(ctx context.Context, id string, w wantedVolume) error {
	attempted := "create volume " + w.name
	for {
		v, err := volumes.Get(ctx, c.volume, id).Extract()
		if isAbsent(err) {
			return provider.Errorf(provider.Aborted, "%s: the volume was deleted", attempted)
		}
		if err != nil {
			return createError(ctx, err, attempted, w.field)
		}
		switch {
		case v.Status == "available":
			return nil
		case strings.HasPrefix(v.Status, "error"):
			if _, err := c.deleteVolume(ctx, v); err != nil {
				return err
			}
			return provider.Errorf(provider.Internal, "%s: Cinder could not create the volume (%s); it will be replaced",
				attempted, v.Status)
		case v.Status == "reserved", v.Status == "attaching", v.Status == "in-use", v.Status == "detaching":
			if _, err := c.deleteVolume(ctx, v); err != nil {
				return err
			}
			return provider.Errorf(provider.Aborted,
				"%s: the volume is %s for a server that was not created; it will be replaced", attempted, v.Status)
		}
		if err := sleep(ctx, volumePoll); err != nil {
			return translate(ctx, err, attempted+" with status "+v.Status)
		}
	}
}

// deleteVolumes requests the deletion of unused volumes and returns what still exists.
func (c *clients) deleteVolumes(ctx context.Context, all []volumes.Volume, lookup *serverLookup) (left []string,
	err error) {
	for i := range all {
		v := &all[i]
		used := false
		for _, a := range v.Attachments {
			exists, err := lookup.exists(ctx, a.ServerID)
			if err != nil {
				return nil, err
			}
			used = used || exists
		}
		if used {
			continue
		}
		refused := ""
		if v.Status != "deleting" {
			if refused, err = c.deleteVolume(ctx, v); err != nil {
				return nil, err
			}
		}
		left = append(left, "volume "+v.ID+" ("+v.Status+")"+refused)
	}
	return left, nil
}

// deleteVolume deletes the attachments first: a volume stays reserved or attached after Nova refused its server or lost
// its host. If the state does not allow the deletion now, for example because of snapshots, it returns OpenStack's
// answer. The next call tries again.
func (c *clients) deleteVolume(ctx context.Context, v *volumes.Volume) (refused string, err error) {
	if v.Status != "available" && !strings.HasPrefix(v.Status, "error") {
		all, err := allPages(ctx, c.volume, attachments.List(c.volume, attachments.ListOpts{VolumeID: v.ID}),
			attachments.ExtractAttachments)
		if err != nil {
			return "", translate(ctx, err, "list the attachments of volume "+v.ID)
		}
		for _, a := range all {
			if err := attachments.Delete(ctx, c.volume, a.ID).ExtractErr(); err != nil && !isAbsent(err) && !isBusy(err) {
				return "", translate(ctx, err, "delete an attachment of volume "+v.ID)
			}
		}
	}
	err = volumes.Delete(ctx, c.volume, v.ID, volumes.DeleteOpts{}).ExtractErr()
	switch {
	case err == nil, isAbsent(err):
		return "", nil
	case isBusy(err):
		return answerText(err), nil
	}
	return "", translate(ctx, err, "delete volume "+v.ID)
}

// isBusy reports whether the state of a volume does not allow the call now. Older versions of Cinder return the status
// 400, and versions since 2023 return 409.
func isBusy(err error) bool {
	a, ok := answerOf(err)
	return ok && (a.status == 400 || a.status == 409)
}
