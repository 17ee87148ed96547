package driver

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
	"machinist.dev/machinist/providers/openstack/machine"
)

// maxUserDataBytes is Nova's limit for user data: 65535 characters of base64.
// https://docs.openstack.org/api-ref/compute/#create-server
const maxUserDataBytes = 65535 / 4 * 3

type serverRequest struct {
	spec     machine.Spec
	own      owner
	name     string
	version  string
	userData []byte

	flavor, flavorName, image, serverGroup string
}

// Create implements provider.Driver. Create creates the ports, the volumes and then the server.
func (d *Driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	if n := len(req.UserData.Reveal()); n > maxUserDataBytes {
		return nil, provider.Errorf(provider.InvalidArgument,
			"the user data has %d bytes, more than the %d that Nova accepts", n, maxUserDataBytes)
	}
	c, err := d.clients(ctx, req.Class.Credentials, spec.Region)
	if err != nil {
		return nil, err
	}
	r := &serverRequest{spec: spec, own: own, name: naming.Instance(req.ClusterID, req.Machine, req.Token),
		version: req.Version, userData: req.UserData.Reveal()}
	if _, busy := d.creatingServers.LoadOrStore(r.name, true); busy {
		return nil, provider.Errorf(provider.Aborted, "create server %s: another call is creating the server", r.name)
	}
	defer d.creatingServers.Delete(r.name)
	s, err := c.findExisting(ctx, r, naming.IsFirst(req.Machine, req.Token))
	if provider.IsNotFound(err) {
		s, err = c.launch(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	in, err := c.convert(s)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwner(s, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists, "create server: the existing server %s is being deleted",
			in.ProviderID)
	}
	return in, nil
}

// maxMetadataDelay is how long a new server may be shown without its metadata. The limit is generous, because the two
// clocks may differ by minutes.
const maxMetadataDelay = 10 * time.Minute

// checkOwner returns nil if the server has the owner's metadata. For a new server with the owner's name and no
// metadata, it returns Aborted, so that the caller tries again. All other servers belong to another owner.
func (c *clients) checkOwner(s *servers.Server, in *provider.Instance, own owner) error {
	err := in.OwnedBy(own.cluster, own.machine)
	if err == nil || !own.mayOwn(s) || s.Created.IsZero() || time.Since(s.Created).Abs() > maxMetadataDelay {
		return err
	}
	return provider.Errorf(provider.Aborted, "server %s is new and shows no metadata yet", s.ID)
}

// findExisting finds the server of an earlier call: by name for the same attempt, and by metadata for another attempt.
func (c *clients) findExisting(ctx context.Context, r *serverRequest, first bool) (*servers.Server, error) {
	same, err := c.findByName(ctx, r)
	if err != nil || same != nil {
		return same, err
	}
	if !first {
		all, err := c.serversOf(ctx, r.own)
		if err != nil {
			return nil, err
		}
		if best := preferredServer(all); best != nil {
			if state, _ := stateOf(best); state != provider.StateTerminating {
				return best, nil
			}
		}
	}
	return nil, provider.Errorf(provider.NotFound, "no server belongs to machine %s", r.own.machine.UID)
}

// findByName returns the server with the requested name, or nil.
func (c *clients) findByName(ctx context.Context, r *serverRequest) (*servers.Server, error) {
	listed, err := allPages(ctx, c.compute, servers.List(c.compute, servers.ListOpts{Name: "^" + regexp.QuoteMeta(r.name) + "$"}),
		servers.ExtractServers)
	if err != nil {
		return nil, translate(ctx, err, "list servers")
	}
	var found []*servers.Server
	for i := range listed {
		if listed[i].Name != r.name {
			continue
		}
		s, err := c.get(ctx, listed[i].ID)
		if provider.IsNotFound(err) {
			// There are two possible causes: the list still contains a deleted server, or a read by ID does not return
			// a new server yet. Assume a new server only if its age and state allow this.
			if time.Since(listed[i].Created).Abs() > maxMetadataDelay || !r.own.owns(listed[i].Metadata) ||
				listed[i].Status != "BUILD" && listed[i].Status != "ACTIVE" {
				continue
			}
			s, err = &listed[i], nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return preferredServer(found), nil
}

// launch creates all parts and then the server. After a permanent refusal, it deletes the parts. Otherwise, the parts
// would count against the quota, and the volumes would stay reserved.
func (c *clients) launch(ctx context.Context, r *serverRequest) (*servers.Server, error) {
	if err := c.resolve(ctx, r); err != nil {
		return nil, err
	}
	s, err := c.createAll(ctx, r)
	switch provider.CodeOf(err) {
	case provider.ResourceExhausted, provider.FailedPrecondition, provider.InvalidArgument, provider.PermissionDenied:
		// The next call of Create or Delete deletes the parts that remain.
		_, _ = c.deleteParts(ctx, r.own, r.name)
	case provider.Aborted:
		// Another call with the same token may have created the server.
		if server, getErr := c.findByName(ctx, r); getErr == nil && server != nil {
			return server, nil
		}
	}
	return s, err
}

func (c *clients) createAll(ctx context.Context, r *serverRequest) (*servers.Server, error) {
	s, portIDs, err := c.createPorts(ctx, r)
	if s != nil || err != nil {
		return s, err
	}
	volumeIDs, err := c.ensureVolumes(ctx, r)
	if err != nil {
		return nil, err
	}
	s, err = c.createServer(ctx, r, portIDs, volumeIDs)
	if provider.CodeOf(err) == provider.FailedPrecondition && c.partsDeleted(ctx, portIDs, volumeIDs) {
		return nil, provider.Errorf(provider.Aborted, "create server %s: its ports or volumes are being deleted", r.name)
	}
	return s, err
}

// partsDeleted reports whether a port or a volume no longer exists. A missing port or volume means that another call
// deleted the machine or its leftovers.
func (c *clients) partsDeleted(ctx context.Context, portIDs, volumeIDs []string) bool {
	for _, id := range portIDs {
		if _, err := ports.Get(ctx, c.network, id).Extract(); isAbsent(err) {
			return true
		}
	}
	for _, id := range volumeIDs {
		if v, err := volumes.Get(ctx, c.volume, id).Extract(); isAbsent(err) || err == nil && v.Status == "deleting" {
			return true
		}
	}
	return false
}

// resolve finds the IDs of the objects that the specification names.
func (c *clients) resolve(ctx context.Context, r *serverRequest) error {
	flavor, err := c.findFlavor(ctx, r.spec.Flavor)
	if err != nil {
		return err
	}
	r.flavor, r.flavorName = flavor.ID, flavor.Name
	image, err := c.findImage(ctx, r.spec.Image)
	if err != nil {
		return err
	}
	r.image = image.ID
	if r.spec.ServerGroup != "" {
		r.serverGroup, err = c.serverGroupID(ctx, r.spec.ServerGroup)
	}
	return err
}

// lookupTries limits how often createPorts looks for the server of an earlier request, once per second.
const lookupTries = 4

// createPorts never reuses the ports of an earlier call. The request for a server with these ports may still be in
// transit, and must fail when it arrives. createPorts first waits some seconds for the server of the earlier call. If
// OpenStack shows this server, createPorts returns it instead of ports.
func (c *clients) createPorts(ctx context.Context, r *serverRequest) (*servers.Server, []string, error) {
	for try := 0; ; try++ {
		s, unused, err := c.earlierPorts(ctx, r)
		if err != nil || s != nil {
			return s, nil, err
		}
		if len(unused) == 0 {
			break
		}
		if try == lookupTries {
			for _, id := range unused {
				if _, err := c.deletePort(ctx, id); err != nil {
					return nil, nil, err
				}
			}
			break
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, nil, translate(ctx, err, "wait for a server that an earlier try may have created")
		}
		if s, err := c.findByName(ctx, r); err != nil || s != nil {
			return s, nil, err
		}
	}
	ids := make([]string, len(r.spec.Ports))
	for i, p := range r.spec.Ports {
		var err error
		if p.Existing != "" {
			ids[i], err = c.existingPortID(ctx, fmt.Sprintf("ports[%d].existing", i), p.Existing)
		} else {
			ids[i], err = c.createPort(ctx, r, i)
		}
		if err == nil && p.Trunk {
			err = c.createTrunk(ctx, r, i, ids[i])
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, ids, nil
}

// earlierPorts finds the ports of an earlier try of the same attempt, and the server that uses one of them.
func (c *clients) earlierPorts(ctx context.Context, r *serverRequest) (s *servers.Server, unused []string, err error) {
	all, err := c.portsOf(ctx, r.own)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		if serverOfPort(all[i].Name) != r.name {
			continue
		}
		if all[i].DeviceID != "" {
			s, err := c.get(ctx, all[i].DeviceID)
			if err == nil {
				return s, nil, nil
			}
			if !provider.IsNotFound(err) {
				return nil, nil, err
			}
		}
		unused = append(unused, all[i].ID)
	}
	return nil, unused, nil
}

func (r *serverRequest) metadata() map[string]string {
	all := maps.Clone(r.spec.Metadata)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, r.own.identity())
	all[metaSpec] = specHash(r.spec)
	for key, text := range map[string]string{metaVersion: r.version, metaNames: r.spec.MetadataNames(),
		metaTags: strings.Join(r.spec.SortedTags(), ",")} {
		if text != "" {
			all[key] = text
		}
	}
	return all
}

// createServer returns the server when Nova has accepted the request.
// https://docs.openstack.org/api-ref/compute/#create-server
func (c *clients) createServer(ctx context.Context, r *serverRequest, ports, volumes []string) (*servers.Server,
	error) {
	networks := make([]servers.Network, len(ports))
	for i, id := range ports {
		networks[i] = servers.Network{Port: id}
	}
	options := servers.CreateOpts{
		Name: r.name, FlavorRef: r.flavor, ImageRef: r.image, AvailabilityZone: r.spec.AvailabilityZone,
		Networks: networks, Metadata: r.metadata(), Tags: r.spec.SortedTags(), BlockDevice: r.blockDevices(volumes),
		// The library would not encode a text that looks like base64.
		UserData: []byte(base64.StdEncoding.EncodeToString(r.userData)),
	}
	if r.spec.RootVolume != nil {
		options.ImageRef = ""
	}
	if r.spec.ConfigDrive {
		yes := true
		options.ConfigDrive = &yes
	}
	var hints servers.SchedulerHintOptsBuilder
	if r.serverGroup != "" {
		hints = servers.SchedulerHintOpts{Group: r.serverGroup}
	}
	var create servers.CreateOptsBuilder = options
	if r.spec.KeyPair != "" {
		create = keypairs.CreateOptsExt{CreateOptsBuilder: options, KeyName: r.spec.KeyPair}
	}
	created, err := servers.Create(ctx, c.compute, create, hints).Extract()
	if err != nil {
		return nil, createError(ctx, err, "create server "+r.name+" of flavor "+r.flavorName, serverField(err))
	}
	// The answer contains little more than the ID.
	return &servers.Server{ID: created.ID, Name: r.name, Status: "BUILD", Metadata: options.Metadata,
		AvailabilityZone: r.spec.AvailabilityZone, Flavor: map[string]any{"original_name": r.flavorName}}, nil
}

// blockDevices returns the disks of a server with volumes. Nova requires that the list also contains the disk with the
// image.
func (r *serverRequest) blockDevices(volumes []string) []servers.BlockDevice {
	var all []servers.BlockDevice
	if r.spec.RootVolume == nil && len(volumes) > 0 {
		all = append(all, servers.BlockDevice{SourceType: servers.SourceImage, UUID: r.image,
			DestinationType: servers.DestinationLocal, DeleteOnTermination: true})
	}
	for i, id := range volumes {
		device := servers.BlockDevice{SourceType: servers.SourceVolume, UUID: id,
			DestinationType: servers.DestinationVolume, DeleteOnTermination: true, BootIndex: -1}
		if i == 0 && r.spec.RootVolume != nil {
			device.BootIndex = 0
		}
		all = append(all, device)
	}
	return all
}
