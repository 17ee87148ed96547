package backend

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"
)

// Project contains clients of an OpenStack project. The clients do not use code of the driver.
type Project struct {
	Compute, Network, Volume, Image, Identity *gophercloud.ServiceClient
	// ID is the ID of the project.
	ID string
}

// OpenProject signs in with an entry of a clouds.yaml.
func OpenProject(ctx context.Context, cloudsYAML, cloud string) (*Project, error) {
	auth, endpoint, _, err := clouds.Parse(clouds.WithLocations(cloudsYAML), clouds.WithCloudName(cloud))
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	client, err := config.NewProviderClient(ctx, auth)
	if err != nil {
		return nil, err
	}
	p := &Project{}
	for _, service := range []struct {
		into **gophercloud.ServiceClient
		open func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
	}{
		{&p.Compute, openstack.NewComputeV2}, {&p.Network, openstack.NewNetworkV2},
		{&p.Volume, openstack.NewBlockStorageV3}, {&p.Image, openstack.NewImageV2},
		{&p.Identity, openstack.NewIdentityV3},
	} {
		if *service.into, err = service.open(client, endpoint); err != nil {
			return nil, err
		}
	}
	p.Compute.Microversion = "2.52"
	signedIn, ok := client.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil, errors.New("the answer to the sign-in does not contain a project")
	}
	project, err := signedIn.ExtractProject()
	if err != nil {
		return nil, err
	}
	p.ID = project.ID
	return p, nil
}

// AllPages returns the entries of all pages of a list.
func AllPages[T any](ctx context.Context, pager pagination.Pager, extract func(pagination.Page) ([]T,
	error)) ([]T, error) {
	page, err := pager.AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return extract(page)
}

// Resources returns everything that costs money or blocks a name, with its kind, name and ID.
func (p *Project) Resources(ctx context.Context) ([]string, error) {
	var found []string
	serverList, err := AllPages(ctx, servers.List(p.Compute, servers.ListOpts{}), servers.ExtractServers)
	for _, s := range serverList {
		// Lists sometimes contain deleted servers.
		if _, err := servers.Get(ctx, p.Compute, s.ID).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			found = append(found, "server/"+s.Name+"/"+s.ID)
		}
	}
	if err != nil {
		return nil, err
	}
	portList, err := AllPages(ctx, ports.List(p.Network, ports.ListOpts{}), ports.ExtractPorts)
	for _, port := range portList {
		found = append(found, "port/"+port.Name+"/"+port.ID)
	}
	if err != nil {
		return nil, err
	}
	trunkList, err := AllPages(ctx, trunks.List(p.Network, trunks.ListOpts{}), trunks.ExtractTrunks)
	for _, trunk := range trunkList {
		found = append(found, "trunk/"+trunk.Name+"/"+trunk.ID)
	}
	if err != nil {
		return nil, err
	}
	volumeList, err := AllPages(ctx, volumes.List(p.Volume, volumes.ListOpts{}), volumes.ExtractVolumes)
	for _, v := range volumeList {
		found = append(found, "volume/"+v.Name+"/"+v.ID)
	}
	slices.Sort(found)
	return found, err
}
