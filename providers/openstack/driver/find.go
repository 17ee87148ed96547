package driver

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
)

// Get implements provider.Driver. If the request contains a provider ID, Get also returns a server of another owner. An
// adoption reads the metadata of such a server.
func (d *Driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	c, id, err := d.clientsFor(ctx, req.Class, req.ProviderID, req.Scope)
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
	if best := preferredServer(all); best != nil {
		return c.convert(best)
	}
	return nil, provider.Errorf(provider.NotFound, "no server belongs to machine %s of cluster %q", own.machine.UID,
		own.cluster)
}

func (c *clients) get(ctx context.Context, id string) (*servers.Server, error) {
	attempted := "get server " + id
	s, err := servers.Get(ctx, c.compute, id).Extract()
	if isAbsent(err) || err == nil && s.Status == "DELETED" {
		return nil, &provider.Error{Code: provider.NotFound, Message: attempted + ": the server does not exist", Cause: err}
	}
	if err != nil {
		return nil, translate(ctx, err, attempted)
	}
	return s, nil
}

// serversOf returns the servers of an owner. serversOf searches by name first, and then by metadata for adopted
// servers. Nova ignores metadata filters of users who are not administrators. Each server is read again, because
// lists sometimes contain deleted servers.
func (c *clients) serversOf(ctx context.Context, own owner) ([]*servers.Server, error) {
	found, err := c.serversNamed(ctx, "^"+own.base(), own)
	if err == nil && len(found) == 0 {
		found, err = c.serversNamed(ctx, "", own)
	}
	return found, err
}

// serversNamed returns the servers of an owner whose names match a regular expression. An empty expression matches all
// names.
func (c *clients) serversNamed(ctx context.Context, pattern string, own owner) ([]*servers.Server, error) {
	listed, err := allPages(ctx, c.compute, servers.List(c.compute, servers.ListOpts{Name: pattern}),
		servers.ExtractServers)
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

// mayOwn reports whether the metadata of a server contain no owner, and its name is one that the driver gives to
// servers of the owner. The metadata of a new server may appear late.
func (o owner) mayOwn(s *servers.Server) bool {
	return naming.IsOf(s.Name, o.base()) && s.Metadata[provider.TagCluster] == "" &&
		s.Metadata[provider.TagMachineUID] == ""
}

// preferredServer returns the preferred one of several servers of a machine: first running and pending servers, then
// stopped servers, then failed servers, then deleted servers. Without a server, it returns nil.
func preferredServer(all []*servers.Server) *servers.Server {
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

// serverLookup finds out whether servers exist. serverLookup reads each server only once.
type serverLookup struct {
	clients *clients
	known   map[string]bool
}

func (c *clients) newServerLookup() *serverLookup {
	return &serverLookup{clients: c, known: map[string]bool{}}
}

func (p *serverLookup) exists(ctx context.Context, id string) (bool, error) {
	if exists, known := p.known[id]; known {
		return exists, nil
	}
	if !idFormat.MatchString(id) {
		return true, nil // The port belongs to a router or a load balancer.
	}
	_, err := p.clients.get(ctx, id)
	if err != nil && !provider.IsNotFound(err) {
		return false, err
	}
	p.known[id] = err == nil
	return err == nil, nil
}
