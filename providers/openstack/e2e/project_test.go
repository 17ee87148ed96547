//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"
)

// project is an account as others use it, past the driver.
type project struct {
	compute, network, volume, image *gophercloud.ServiceClient
}

// projectOf signs in as one of the clouds of a clouds.yaml.
func projectOf(ctx context.Context, cloudsYAML, cloud string) (*project, error) {
	auth, endpoint, _, err := clouds.Parse(clouds.WithLocations(cloudsYAML), clouds.WithCloudName(cloud))
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	client, err := config.NewProviderClient(ctx, auth)
	if err != nil {
		return nil, err
	}
	p := &project{}
	for _, service := range []struct {
		into **gophercloud.ServiceClient
		open func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
	}{
		{&p.compute, openstack.NewComputeV2}, {&p.network, openstack.NewNetworkV2},
		{&p.volume, openstack.NewBlockStorageV3}, {&p.image, openstack.NewImageV2},
	} {
		if *service.into, err = service.open(client, endpoint); err != nil {
			return nil, err
		}
	}
	p.compute.Microversion = "2.52"
	return p, nil
}

// all goes through a list.
func all[T any](ctx context.Context, pager pagination.Pager, extract func(pagination.Page) ([]T, error)) ([]T, error) {
	page, err := pager.AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return extract(page)
}

// resources are all that costs money or blocks a name.
func (p *project) resources(ctx context.Context) ([]string, error) {
	var found []string
	serverList, err := all(ctx, servers.List(p.compute, servers.ListOpts{}), servers.ExtractServers)
	for _, s := range serverList {
		// A list now and then shows a server that was deleted.
		if _, err := servers.Get(ctx, p.compute, s.ID).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			found = append(found, "server/"+s.Name+"/"+s.ID)
		}
	}
	if err != nil {
		return nil, err
	}
	portList, err := all(ctx, ports.List(p.network, ports.ListOpts{}), ports.ExtractPorts)
	for _, port := range portList {
		found = append(found, "port/"+port.Name+"/"+port.ID)
	}
	if err != nil {
		return nil, err
	}
	trunkList, err := all(ctx, trunks.List(p.network, trunks.ListOpts{}), trunks.ExtractTrunks)
	for _, trunk := range trunkList {
		found = append(found, "trunk/"+trunk.Name+"/"+trunk.ID)
	}
	if err != nil {
		return nil, err
	}
	volumeList, err := all(ctx, volumes.List(p.volume, volumes.ListOpts{}), volumes.ExtractVolumes)
	for _, v := range volumeList {
		found = append(found, "volume/"+v.Name+"/"+v.ID)
	}
	slices.Sort(found)
	return found, err
}

// leavesNothing fails the test if, at its end, something is in the project that is not there now.
func (p *project) leavesNothing(t *testing.T) {
	t.Helper()
	before, err := p.resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := p.resources(context.WithoutCancel(t.Context()))
		left = slices.DeleteFunc(left, func(r string) bool { return slices.Contains(before, r) })
		if err != nil || len(left) > 0 {
			t.Errorf("in the project are left: %v, %v", left, err)
		}
	})
}

// launch makes a server as somebody with a script does, and waits until it runs.
func (p *project) launch(ctx context.Context, name string, metadata map[string]string) (string,
	func(context.Context) error, error) {
	flavorList, err := all(ctx, flavors.ListDetail(p.compute, flavors.ListOpts{}), flavors.ExtractFlavors)
	if err != nil {
		return "", nil, err
	}
	imageList, err := all(ctx, images.List(p.image, images.ListOpts{}), images.ExtractImages)
	if err != nil {
		return "", nil, err
	}
	networkList, err := all(ctx, networks.List(p.network, networks.ListOpts{}), networks.ExtractNetworks)
	if err != nil {
		return "", nil, err
	}
	options := servers.CreateOpts{Name: name, ImageRef: imageList[0].ID, Metadata: metadata,
		Networks: []servers.Network{{UUID: networkList[0].ID}}}
	for _, f := range flavorList {
		if f.Name == "m1.small" {
			options.FlavorRef = f.ID
		}
	}
	made, err := servers.Create(ctx, p.compute, options, nil).Extract()
	if err != nil {
		return "", nil, err
	}
	err = p.await(ctx, "the server runs", func() (bool, error) {
		s, err := servers.Get(ctx, p.compute, made.ID).Extract()
		return err == nil && s.Status == "ACTIVE", err
	})
	return "openstack:///" + made.ID, func(ctx context.Context) error { return p.remove(ctx, made.ID) }, err
}

// remove deletes a server and waits until it is gone.
func (p *project) remove(ctx context.Context, id string) error {
	gone := func() (bool, error) {
		err := servers.Delete(ctx, p.compute, id).ExtractErr()
		if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return true, nil
		}
		return false, err
	}
	return p.await(ctx, "the server is gone", gone)
}

// await asks again and again, a minute at most.
func (p *project) await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in a minute: %w", what, err)
		case <-ticker.C:
		}
	}
}

// tags are a server's metadata and tags.
func (p *project) tags(ctx context.Context, providerID string) (map[string]string, error) {
	s, err := servers.Get(ctx, p.compute, idOf(providerID)).Extract()
	if err != nil {
		return nil, err
	}
	out := maps.Clone(s.Metadata)
	if s.Tags != nil {
		for _, tag := range *s.Tags {
			out["tag/"+tag] = ""
		}
	}
	return out, nil
}

// dropParts removes the ports of servers whose metadata have a key.
func (p *project) dropParts(ctx context.Context, key string) error {
	list, err := all(ctx, servers.List(p.compute, servers.ListOpts{}), servers.ExtractServers)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Metadata[key] == "" {
			continue
		}
		of, err := all(ctx, ports.List(p.network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
		if err != nil {
			return err
		}
		for _, port := range of {
			if err := ports.Delete(ctx, p.network, port.ID).ExtractErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

// idOf is the last part of a provider ID.
func idOf(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }
