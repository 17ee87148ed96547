//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/providers/openstack/backend"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

// project is an OpenStack project that the test accesses without the driver, as another user would.
type project struct{ *backend.Project }

func open(t *testing.T, cloudsYAML, cloud string) project {
	t.Helper()
	p, err := backend.OpenProject(t.Context(), cloudsYAML, cloud)
	if err != nil {
		t.Fatal(err)
	}
	return project{p}
}

// checkLeavesNothing fails the test if the project contains additional resources at the end.
func (p project) checkLeavesNothing(t *testing.T) {
	t.Helper()
	before, err := p.Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := p.Resources(context.WithoutCancel(t.Context()))
		left = slices.DeleteFunc(left, func(r string) bool { return slices.Contains(before, r) })
		if err != nil || len(left) > 0 {
			t.Errorf("the test left %v in the project, %v", left, err)
		}
	})
}

func (p project) flavor(ctx context.Context, name string) (string, error) {
	list, err := backend.AllPages(ctx, flavors.ListDetail(p.Compute, flavors.ListOpts{}), flavors.ExtractFlavors)
	for _, f := range list {
		if f.Name == name {
			return f.ID, nil
		}
	}
	return "", fmt.Errorf("the flavor %s does not exist: %w", name, err)
}

// imageID returns the ID of an image. An empty name means any image.
func (p project) imageID(ctx context.Context, name string) (string, error) {
	list, err := backend.AllPages(ctx, images.List(p.Image, images.ListOpts{Name: name}), images.ExtractImages)
	if err != nil || len(list) == 0 {
		return "", fmt.Errorf("the image %q does not exist: %w", name, err)
	}
	return list[0].ID, nil
}

// nodesNetwork returns the IDs of the network of nodes and of its subnet.
func (p project) nodesNetwork(ctx context.Context) (network, subnet string, err error) {
	list, err := backend.AllPages(ctx, networks.List(p.Network, networks.ListOpts{Name: sample.Network}), networks.ExtractNetworks)
	if err != nil || len(list) != 1 || len(list[0].Subnets) != 1 {
		return "", "", fmt.Errorf("found the networks %v: %w", list, err)
	}
	return list[0].ID, list[0].Subnets[0], nil
}

func isNotFound(err error) bool { return gophercloud.ResponseCodeIs(err, http.StatusNotFound) }

// createServer creates a server without the driver, and waits until it runs. It returns the provider ID and a function
// that deletes the server.
func (p project) createServer(ctx context.Context, name string, metadata map[string]string) (string,
	func(context.Context) error, error) {
	flavor, err := p.flavor(ctx, "m1.small")
	if err != nil {
		return "", nil, err
	}
	image, err := p.imageID(ctx, "")
	if err != nil {
		return "", nil, err
	}
	network, _, err := p.nodesNetwork(ctx)
	if err != nil {
		return "", nil, err
	}
	options := servers.CreateOpts{Name: name, FlavorRef: flavor, ImageRef: image, Metadata: metadata,
		Networks: []servers.Network{{UUID: network}}}
	created, err := servers.Create(ctx, p.Compute, options, nil).Extract()
	if err != nil {
		return "", nil, err
	}
	err = p.await(ctx, "the server runs", func() (bool, error) {
		s, err := servers.Get(ctx, p.Compute, created.ID).Extract()
		return err == nil && s.Status == "ACTIVE", err
	})
	return "openstack:///" + created.ID, func(ctx context.Context) error { return p.remove(ctx, created.ID) }, err
}

func (p project) remove(ctx context.Context, id string) error {
	gone := func() (bool, error) {
		err := servers.Delete(ctx, p.Compute, id).ExtractErr()
		if isNotFound(err) {
			return true, nil
		}
		return false, err
	}
	return p.await(ctx, "the server is gone", gone)
}

// await calls condition repeatedly until it returns true, for at most a minute.
func (p project) await(ctx context.Context, what string, condition func() (bool, error)) error {
	return awaitFor(ctx, time.Minute, what, condition)
}

func awaitFor(ctx context.Context, limit time.Duration, what string, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s, the condition %q is not met: %w", limit, what, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func (p project) tags(ctx context.Context, providerID string) (map[string]string, error) {
	s, err := servers.Get(ctx, p.Compute, idOf(providerID)).Extract()
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

// dropParts deletes the ports of all servers with a metadata key.
func (p project) dropParts(ctx context.Context, key string) error {
	list, err := backend.AllPages(ctx, servers.List(p.Compute, servers.ListOpts{}), servers.ExtractServers)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Metadata[key] == "" {
			continue
		}
		portList, err := backend.AllPages(ctx, ports.List(p.Network, ports.ListOpts{DeviceID: s.ID}), ports.ExtractPorts)
		if err != nil {
			return err
		}
		for _, port := range portList {
			if err := ports.Delete(ctx, p.Network, port.ID).ExtractErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

// failOperations sets all servers with a metadata key to ERROR, as if an operation had failed. The guests of these
// servers keep running. Only an administrator may do this.
func (p project) failOperations(ctx context.Context, key string) error {
	list, err := backend.AllPages(ctx, servers.List(p.Compute, servers.ListOpts{AllTenants: true}), servers.ExtractServers)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Metadata[key] == "" || s.Status != "ACTIVE" {
			continue
		}
		if err := servers.ResetState(ctx, p.Compute, s.ID, servers.StateError).ExtractErr(); err != nil {
			return err
		}
	}
	return nil
}

// removeQuota sets the server quota to zero, so that Nova refuses new servers after reserving their volumes. The
// returned function restores the quota. Only an administrator may change a quota.
func (p project) removeQuota(ctx context.Context, id string) (end func(), err error) {
	limit := func(n int) error {
		_, err := quotasets.Update(context.WithoutCancel(ctx), p.Compute, id, quotasets.UpdateOpts{Instances: &n}).Extract()
		return err
	}
	return func() { _ = limit(-1) }, limit(0)
}

func idOf(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }

func serversOf(ctx context.Context, p project) ([]servers.Server, error) {
	return backend.AllPages(ctx, servers.List(p.Compute, servers.ListOpts{}), servers.ExtractServers)
}

func (p project) isOn(ctx context.Context, providerID string) (bool, error) {
	s, err := servers.Get(ctx, p.Compute, idOf(providerID)).Extract()
	if err != nil {
		return false, err
	}
	return s.PowerState == servers.RUNNING, nil
}
