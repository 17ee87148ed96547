package driver

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
)

// Get implements provider.Driver. By provider ID it returns the server whoever's it is: who adopts one has to see its
// metadata.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	region, id, err := regionFor(req.ProviderID, req.Scope, req.Class.Spec)
	if err != nil {
		return nil, err
	}
	c, err := d.clients(ctx, req.Class.Credentials, region)
	if err != nil {
		return nil, err
	}
	if id != "" {
		s, err := c.get(ctx, id)
		if err != nil {
			return nil, err
		}
		return c.convert(s)
	}
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return nil, err
	}
	all, err := c.serversOf(ctx, own)
	if err != nil {
		return nil, err
	}
	if best := preferred(all); best != nil {
		return c.convert(best)
	}
	return nil, provider.Errorf(provider.NotFound, "there is no server of machine %s in cluster %q", own.machine.UID,
		own.cluster)
}

// get reads one server.
func (c *clients) get(ctx context.Context, id string) (*servers.Server, error) {
	attempted := "get server " + id
	s, err := servers.Get(ctx, c.compute, id).Extract()
	if absent(err) || err == nil && s.Status == "DELETED" {
		return nil, &provider.Error{Code: provider.NotFound, Message: attempted + ": there is none", Cause: err}
	}
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	return s, nil
}

// serversOf are the servers of an owner: those with his names, or where there is none, all that have his metadata, such
// as an adopted one. Nova ignores a member's search by metadata. Each is read once more, because a list now and then
// shows a server that was deleted.
func (c *clients) serversOf(ctx context.Context, own owner) ([]*servers.Server, error) {
	found, err := c.named(ctx, "^"+own.base(), own)
	if err == nil && len(found) == 0 {
		found, err = c.named(ctx, "", own)
	}
	return found, err
}

// named are the servers of an owner whose names match a regular expression; all of his where that is empty.
func (c *clients) named(ctx context.Context, pattern string, own owner) ([]*servers.Server, error) {
	listed, err := every(ctx, servers.List(c.compute, servers.ListOpts{Name: pattern}), servers.ExtractServers)
	if err != nil {
		return nil, translate(ctx, err, "list servers")
	}
	var found []*servers.Server
	seen := map[string]bool{}
	for i := range listed {
		if !own.owns(listed[i].Metadata) && !own.mayOwn(&listed[i]) || seen[listed[i].ID] {
			continue
		}
		seen[listed[i].ID] = true
		s, err := c.get(ctx, listed[i].ID)
		if provider.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if own.owns(s.Metadata) {
			found = append(found, s)
		}
	}
	return found, nil
}

// mayOwn reports whether a server has one of the owner's names and no metadata of anybody's: it may just have been
// made.
func (o owner) mayOwn(s *servers.Server) bool {
	return naming.IsOf(s.Name, o.base()) && s.Metadata[provider.TagCluster] == "" &&
		s.Metadata[provider.TagMachineUID] == ""
}

// preferred is the server that stands for a machine which has several: one that is not being deleted before one that
// is, and one that has not failed before one that has. It is nil where there is none.
func preferred(all []*servers.Server) *servers.Server {
	rank := func(s *servers.Server) int {
		switch state, _ := stateOf(s); state {
		case provider.StateTerminating:
			return 0
		case provider.StateFailed:
			return 1
		case provider.StateStopped:
			return 2
		}
		return 3
	}
	var best *servers.Server
	for _, s := range all {
		if best == nil || rank(s) > rank(best) || rank(s) == rank(best) && s.ID < best.ID {
			best = s
		}
	}
	return best
}

// presence finds out whether servers exist, each once.
type presence struct {
	clients *clients
	known   map[string]bool
}

func (c *clients) presence() *presence { return &presence{clients: c, known: map[string]bool{}} }

func (p *presence) exists(ctx context.Context, id string) (bool, error) {
	if has, known := p.known[id]; known {
		return has, nil
	}
	if !idFormat.MatchString(id) {
		return true, nil // A router's or a load balancer's port names no server.
	}
	_, err := p.clients.get(ctx, id)
	if err != nil && !provider.IsNotFound(err) {
		return false, err
	}
	p.known[id] = err == nil
	return err == nil, nil
}
