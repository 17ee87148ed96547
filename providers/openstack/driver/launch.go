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

// maxUserDataBytes is what Nova takes as user data: 65535 characters of base64.
// https://docs.openstack.org/api-ref/compute/#create-server
const maxUserDataBytes = 65535 / 4 * 3

// order is one server to make.
type order struct {
	spec     machine.Spec
	own      owner
	name     string
	version  string
	userData []byte

	flavor, flavorName, image, serverGroup string
}

// Create implements provider.Driver: volumes, ports, then the server.
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
			"the user data is %d bytes long, more than the %d that Nova takes", n, maxUserDataBytes)
	}
	c, err := d.clients(ctx, req.Class.Credentials, spec.Region)
	if err != nil {
		return nil, err
	}
	o := &order{spec: spec, own: own, name: naming.Instance(req.ClusterID, req.Machine, req.Token), version: req.Version,
		userData: req.UserData.Reveal()}
	if _, busy := d.creating.LoadOrStore(o.name, true); busy {
		return nil, provider.Errorf(provider.Aborted, "create server %s: another call is making it", o.name)
	}
	defer d.creating.Delete(o.name)
	s, err := c.made(ctx, o, naming.IsFirst(req.Machine, req.Token))
	if provider.IsNotFound(err) {
		s, err = c.launch(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	in, err := c.convert(s)
	if err != nil {
		return nil, err
	}
	if err := c.mine(s, in, own); err != nil {
		return nil, err
	}
	if in.State == provider.StateTerminating {
		return nil, provider.Errorf(provider.AlreadyExists, "create server: %s is there and being removed", in.ProviderID)
	}
	return in, nil
}

// lateMetadata is for how long a server may be shown without the metadata that it was made with. It is counted by two
// clocks, which may be minutes apart.
const lateMetadata = 10 * time.Minute

// mine is nil for a server with the owner's metadata. One with the owner's name, without any metadata, and just made is
// most likely his: Aborted has the caller ask again. All others are another's.
func (c *clients) mine(s *servers.Server, in *provider.Instance, own owner) error {
	err := in.OwnedBy(own.cluster, own.machine)
	if err == nil || !own.mayOwn(s) || s.Created.IsZero() || time.Since(s.Created).Abs() > lateMetadata {
		return err
	}
	return provider.Errorf(provider.Aborted, "server %s was just made, and shows no metadata yet", s.ID)
}

// made finds what an earlier try has made. The name tells for tries of the same attempt; a server of another attempt is
// found by its metadata.
func (c *clients) made(ctx context.Context, o *order, first bool) (*servers.Server, error) {
	same, err := c.withName(ctx, o)
	if err != nil || same != nil {
		return same, err
	}
	if !first {
		all, err := c.serversOf(ctx, o.own)
		if err != nil {
			return nil, err
		}
		if best := preferred(all); best != nil {
			if state, _ := stateOf(best); state != provider.StateTerminating {
				return best, nil
			}
		}
	}
	return nil, provider.Errorf(provider.NotFound, "there is no server of machine %s", o.own.machine.UID)
}

// withName returns the server with the order's name, nil where there is none.
func (c *clients) withName(ctx context.Context, o *order) (*servers.Server, error) {
	listed, err := every(ctx, servers.List(c.compute, servers.ListOpts{Name: "^" + regexp.QuoteMeta(o.name) + "$"}),
		servers.ExtractServers)
	if err != nil {
		return nil, translate(ctx, err, "list servers")
	}
	var found []*servers.Server
	for i := range listed {
		if listed[i].Name != o.name {
			continue
		}
		s, err := c.get(ctx, listed[i].ID)
		if provider.IsNotFound(err) {
			// Either the list shows what was deleted, or the read does not know yet what was made.
			if time.Since(listed[i].Created).Abs() > lateMetadata || !o.own.owns(listed[i].Metadata) ||
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
	return preferred(found), nil
}

// launch makes all parts and then the server. Where the server is refused for good, its parts go again: a quota that is
// used up must not be used by parts that wait, and a creation that is refused leaves its volumes reserved.
func (c *clients) launch(ctx context.Context, o *order) (*servers.Server, error) {
	if err := c.resolve(ctx, o); err != nil {
		return nil, err
	}
	s, err := c.assemble(ctx, o)
	switch provider.CodeOf(err) {
	case provider.ResourceExhausted, provider.FailedPrecondition, provider.InvalidArgument, provider.PermissionDenied:
		// What cannot be removed now is removed by the next try, or by Delete.
		_, _ = c.removeParts(ctx, o.own, o.name)
	case provider.Aborted:
		// Another call with the same token may have been faster.
		if there, getErr := c.withName(ctx, o); getErr == nil && there != nil {
			return there, nil
		}
	}
	return s, err
}

// assemble makes the ports, the volumes and the server.
func (c *clients) assemble(ctx context.Context, o *order) (*servers.Server, error) {
	s, portIDs, err := c.ports(ctx, o)
	if s != nil || err != nil {
		return s, err
	}
	volumeIDs, err := c.readyVolumes(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err = c.post(ctx, o, portIDs, volumeIDs)
	if provider.CodeOf(err) == provider.FailedPrecondition && c.removed(ctx, portIDs, volumeIDs) {
		return nil, provider.Errorf(provider.Aborted, "create server %s: what was made for it is being removed", o.name)
	}
	return s, err
}

// removed reports whether a port or a volume is not there although it was made for the server: the same machine is
// being deleted, or somebody tidies up.
func (c *clients) removed(ctx context.Context, portIDs, volumeIDs []string) bool {
	for _, id := range portIDs {
		if _, err := ports.Get(ctx, c.network, id).Extract(); absent(err) {
			return true
		}
	}
	for _, id := range volumeIDs {
		if v, err := volumes.Get(ctx, c.volume, id).Extract(); absent(err) || err == nil && v.Status == "deleting" {
			return true
		}
	}
	return false
}

// resolve finds what the specification names.
func (c *clients) resolve(ctx context.Context, o *order) error {
	flavor, err := c.flavor(ctx, o.spec.Flavor)
	if err != nil {
		return err
	}
	o.flavor, o.flavorName = flavor.ID, flavor.Name
	image, err := c.imageOf(ctx, o.spec.Image)
	if err != nil {
		return err
	}
	o.image = image.ID
	if o.spec.ServerGroup != "" {
		o.serverGroup, err = c.serverGroupOf(ctx, o.spec.ServerGroup)
	}
	return err
}

// laterTries is how often, a second apart, a server is looked for that an earlier try may have asked for.
const laterTries = 4

// ports makes the server's ports and returns their IDs. Ports of an earlier try are not used again: the request for a
// server that was sent with them may still be on its way, and finds none. Before they go, that request gets a few
// seconds; its server is returned where it has arrived.
func (c *clients) ports(ctx context.Context, o *order) (*servers.Server, []string, error) {
	for try := 0; ; try++ {
		s, old, err := c.earlier(ctx, o)
		if err != nil || s != nil {
			return s, nil, err
		}
		if len(old) == 0 {
			break
		}
		if try == laterTries {
			for _, id := range old {
				if _, err := c.removePort(ctx, id); err != nil {
					return nil, nil, err
				}
			}
			break
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, nil, translate(ctx, err, "wait for a server that an earlier try may have made")
		}
		if s, err := c.withName(ctx, o); err != nil || s != nil {
			return s, nil, err
		}
	}
	ids := make([]string, len(o.spec.Ports))
	for i, p := range o.spec.Ports {
		var err error
		if p.Existing != "" {
			ids[i], err = c.existingPort(ctx, fmt.Sprintf("ports[%d].existing", i), p.Existing)
		} else {
			ids[i], err = c.makePort(ctx, o, i)
		}
		if err == nil && p.Trunk {
			err = c.makeTrunk(ctx, o, i, ids[i])
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, ids, nil
}

// earlier finds the ports that an earlier try of the same attempt has made, and the server if one of them has it.
func (c *clients) earlier(ctx context.Context, o *order) (s *servers.Server, unused []string, err error) {
	all, err := c.portsOf(ctx, o.own)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		if serverOfPort(all[i].Name) != o.name {
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

// metadata are those of the server.
func (o *order) metadata() map[string]string {
	all := maps.Clone(o.spec.Metadata)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, o.own.identity())
	all[metaSpec] = specHash(o.spec)
	for key, text := range map[string]string{metaVersion: o.version, metaNames: o.spec.MetadataNames(),
		metaTags: strings.Join(o.spec.SortedTags(), ",")} {
		if text != "" {
			all[key] = text
		}
	}
	return all
}

// post asks for the server and returns it as soon as Nova has accepted it.
// https://docs.openstack.org/api-ref/compute/#create-server
func (c *clients) post(ctx context.Context, o *order, ports, volumes []string) (*servers.Server, error) {
	networks := make([]servers.Network, len(ports))
	for i, id := range ports {
		networks[i] = servers.Network{Port: id}
	}
	options := servers.CreateOpts{
		Name: o.name, FlavorRef: o.flavor, ImageRef: o.image, AvailabilityZone: o.spec.AvailabilityZone,
		Networks: networks, Metadata: o.metadata(), Tags: o.spec.SortedTags(), BlockDevice: o.devices(volumes),
		// The library takes what looks like base64 for it.
		UserData: []byte(base64.StdEncoding.EncodeToString(o.userData)),
	}
	if o.spec.RootVolume != nil {
		options.ImageRef = ""
	}
	if o.spec.ConfigDrive {
		yes := true
		options.ConfigDrive = &yes
	}
	var hints servers.SchedulerHintOptsBuilder
	if o.serverGroup != "" {
		hints = servers.SchedulerHintOpts{Group: o.serverGroup}
	}
	var create servers.CreateOptsBuilder = options
	if o.spec.KeyPair != "" {
		create = keypairs.CreateOptsExt{CreateOptsBuilder: options, KeyName: o.spec.KeyPair}
	}
	made, err := servers.Create(ctx, c.compute, create, hints).Extract()
	if err != nil {
		return nil, creating(ctx, err, "create server "+o.name+" of flavor "+o.flavorName, serverField(err))
	}
	// The answer has little more than the ID.
	return &servers.Server{ID: made.ID, Name: o.name, Status: "BUILD", Metadata: options.Metadata,
		AvailabilityZone: o.spec.AvailabilityZone, Flavor: map[string]any{"original_name": o.flavorName}}, nil
}

// devices are the server's disks. Nova wants the image's among them as soon as there is another.
func (o *order) devices(volumes []string) []servers.BlockDevice {
	var all []servers.BlockDevice
	if o.spec.RootVolume == nil && len(volumes) > 0 {
		all = append(all, servers.BlockDevice{SourceType: servers.SourceImage, UUID: o.image,
			DestinationType: servers.DestinationLocal, DeleteOnTermination: true})
	}
	for i, id := range volumes {
		device := servers.BlockDevice{SourceType: servers.SourceVolume, UUID: id,
			DestinationType: servers.DestinationVolume, DeleteOnTermination: true, BootIndex: -1}
		if i == 0 && o.spec.RootVolume != nil {
			device.BootIndex = 0
		}
		all = append(all, device)
	}
	return all
}
