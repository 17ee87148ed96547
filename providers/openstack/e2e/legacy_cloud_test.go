//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/backend"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

const (
	podNetwork = "100.96.0.0/11"
	virtualIP  = "10.80.0.5"
	rootDisk   = 1 // GiB
)

// oldSystems creates servers as the controllers of the old systems do.
type oldSystems struct {
	project
	group string // ID of the security group
	// userData is the user data of the servers, or nil.
	userData []byte
	// values replace the names in the descriptions.
	values *strings.Replacer
}

func newOldSystems(ctx context.Context, p project, cloudsYAML string) (*oldSystems, error) {
	auth, _, _, err := clouds.Parse(clouds.WithLocations(cloudsYAML), clouds.WithCloudName("machinist"))
	if err != nil {
		return nil, err
	}
	o := &oldSystems{project: p, values: strings.NewReplacer("AUTH_URL", auth.IdentityEndpoint, "USER", auth.Username,
		"PASSWORD", auth.Password, "DOMAIN", auth.DomainName, "PROJECT", auth.Scope.ProjectName, "REGION", sample.Region,
		"FLAVOR", sample.Flavor, "IMAGE", sample.Image, "KEY", sample.KeyPair, "GROUP", sample.SecurityGroup)}
	list, err := backend.AllPages(ctx, groups.List(p.Network, groups.ListOpts{Name: sample.SecurityGroup}), groups.ExtractGroups)
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("found the security groups %v: %w", list, err)
	}
	o.group = list[0].ID
	return o, nil
}

// await waits longer than the method of project, because the servers of a whole fleet are created at the same time.
func (o *oldSystems) await(ctx context.Context, what string, condition func() (bool, error)) error {
	return awaitFor(ctx, 10*time.Minute, what, condition)
}

// legacies returns one description for each old system.
func (o *oldSystems) legacies(ctx context.Context) ([]provider.Legacy, error) {
	network, subnet, err := o.nodesNetwork(ctx)
	if err != nil {
		return nil, err
	}
	kubermatic := `{"identityEndpoint":"AUTH_URL","username":"USER","password":{"value":"PASSWORD"},"domainName":"DOMAIN",` +
		`"projectName":"PROJECT","region":"REGION","image":"IMAGE","flavor":"FLAVOR","securityGroups":["GROUP"],` +
		`"network":"nodes","rootDiskSizeGB":1,"tags":{"team":"blue"}}`
	all := []provider.Legacy{}
	add := func(source, name, spec string, secret map[string]string) {
		data := map[string][]byte{}
		for key, value := range secret {
			data[key] = []byte(o.values.Replace(value))
		}
		spec = o.values.Replace(strings.NewReplacer("NETWORK", network, "SUBNET", subnet).Replace(spec))
		all = append(all, provider.Legacy{Source: source, Provider: name, Spec: provider.NewSecret([]byte(spec)),
			Credentials: provider.NewCredentials(data)})
	}
	add(provider.SourceMachineK8s, "openstack", kubermatic, nil)
	add(provider.SourceMachinesK8s, "openstack", kubermatic, nil)
	add(provider.SourceClusterK8s, "openstack", kubermatic, nil)
	add(provider.SourceGardener, "OpenStack", `{"apiVersion":"openstack.machine.gardener.cloud/v1alpha1",`+
		`"kind":"MachineProviderConfig","spec":{"region":"REGION","availabilityZone":"az-1","flavorName":"FLAVOR",`+
		`"keyName":"KEY","imageName":"IMAGE","securityGroups":["GROUP"],"networkID":"NETWORK","subnetID":"SUBNET",`+
		`"podNetworkCIDRs":["`+podNetwork+`"],"rootDiskSize":1,"rootDiskType":"standard","useConfigDrive":true,`+
		`"tags":{"kubernetes.io-cluster-shoot--e2e":"1","kubernetes.io-role-node":"1"}}}`,
		map[string]string{"authURL": "AUTH_URL", "username": "USER", "password": "PASSWORD", "domainName": "DOMAIN",
			"tenantName": "PROJECT", "userData": "#!/bin/sh"})
	add(provider.SourceOpenShift, "OpenstackProviderSpec", `{"apiVersion":"machine.openshift.io/v1alpha1",`+
		`"kind":"OpenstackProviderSpec","cloudName":"openstack","cloudsSecret":{"name":"openstack-cloud-credentials"},`+
		`"flavor":"FLAVOR","image":"IMAGE","networks":[{"filter":{},"subnets":[{"filter":{"name":"nodes","tags":"e2e"}}]}],`+
		`"securityGroups":[{"filter":{"tags":"e2e"}}],"trunk":true,"tags":["openshiftClusterID=e2e"],`+
		`"serverMetadata":{"Name":"e2e-worker","openshiftClusterID":"e2e"},"rootVolume":{"diskSize":1}}`,
		map[string]string{"clouds.yaml": `{"clouds":{"openstack":{"region_name":"REGION","auth":{"auth_url":"AUTH_URL",` +
			`"username":"USER","password":"PASSWORD","user_domain_name":"DOMAIN","project_domain_name":"DOMAIN",` +
			`"project_name":"PROJECT"}}}}`})
	return all, nil
}

// launch creates a server with its ports and volumes, and waits until it runs. It returns the provider ID and a
// function that deletes the server and its parts.
func (o *oldSystems) launch(ctx context.Context, old provider.Legacy, name string, uid types.UID) (string,
	func(context.Context) error, error) {
	network, subnet, err := o.nodesNetwork(ctx)
	if err != nil {
		return "", nil, err
	}
	flavor, err := o.flavor(ctx, sample.Flavor)
	if err != nil {
		return "", nil, err
	}
	image, err := o.imageID(ctx, sample.Image)
	if err != nil {
		return "", nil, err
	}
	server := servers.CreateOpts{Name: name, FlavorRef: flavor, UserData: o.userData,
		Metadata: map[string]string{"machinist-adoptable": "true"}}
	var portID, volumeID string
	switch old.Source {
	case provider.SourceGardener:
		maps.Copy(server.Metadata, map[string]string{"kubernetes.io-cluster-shoot--e2e": "1", "kubernetes.io-role-node": "1"})
		yes := true
		server.ConfigDrive, server.AvailabilityZone = &yes, "az-1"
		portID, err = o.port(ctx, ports.CreateOpts{Name: name, NetworkID: network, FixedIPs: []ports.IP{{SubnetID: subnet}},
			AllowedAddressPairs: []ports.AddressPair{{IPAddress: podNetwork}}, SecurityGroups: &[]string{o.group}})
		if err == nil {
			volumeID, err = o.volume(ctx, volumes.CreateOpts{Name: name, Size: rootDisk, ImageID: image, VolumeType: "standard",
				Metadata: map[string]string{"kubernetes.io-cluster-shoot--e2e": "1", "kubernetes.io-role-node": "1"}})
		}
		server.BlockDevice = []servers.BlockDevice{{SourceType: servers.SourceVolume, UUID: volumeID,
			DestinationType: servers.DestinationVolume}}
	case provider.SourceOpenShift:
		maps.Copy(server.Metadata, map[string]string{"Name": "e2e-worker", "openshiftClusterID": "e2e"})
		server.Tags = []string{"openshiftClusterID=e2e", "cluster-api-provider-openstack", "openshift-machine-api-e2e"}
		portID, err = o.port(ctx, ports.CreateOpts{Name: name + "-0", NetworkID: network,
			Description: "port of an OpenShift machine", FixedIPs: []ports.IP{{SubnetID: subnet}},
			AllowedAddressPairs: []ports.AddressPair{{IPAddress: virtualIP}}, SecurityGroups: &[]string{o.group}})
		if err == nil {
			_, err = attributestags.ReplaceAll(ctx, o.Network, "ports", portID,
				attributestags.ReplaceAllOpts{Tags: server.Tags}).Extract()
		}
		if err == nil {
			_, err = trunks.Create(ctx, o.Network, trunks.CreateOpts{PortID: portID, Name: name + "-0"}).Extract()
		}
		if err == nil {
			volumeID, err = o.volume(ctx, volumes.CreateOpts{Name: name + "-root", Size: rootDisk, ImageID: image})
		}
		server.BlockDevice = []servers.BlockDevice{{SourceType: servers.SourceVolume, UUID: volumeID,
			DestinationType: servers.DestinationVolume, DeleteOnTermination: true}}
	default:
		maps.Copy(server.Metadata, map[string]string{"machine-uid": string(uid), "team": "blue"})
		server.SecurityGroups = []string{sample.SecurityGroup}
		server.BlockDevice = []servers.BlockDevice{{SourceType: servers.SourceImage, UUID: image, VolumeSize: rootDisk,
			DestinationType: servers.DestinationVolume, DeleteOnTermination: true}}
	}
	if err != nil {
		return "", nil, err
	}
	server.Networks = []servers.Network{{UUID: network}}
	if portID != "" {
		server.Networks = []servers.Network{{Port: portID}}
	}
	create := keypairs.CreateOptsExt{CreateOptsBuilder: server}
	if old.Source == provider.SourceGardener {
		create.KeyName = sample.KeyPair
	}
	created, err := servers.Create(ctx, o.Compute, create, nil).Extract()
	if err != nil {
		return "", nil, err
	}
	status := ""
	err = o.await(ctx, "the server runs", func() (bool, error) {
		s, err := servers.Get(ctx, o.Compute, created.ID).Extract()
		if err != nil {
			return false, err
		}
		status = s.Status
		return status != "BUILD", nil
	})
	if err == nil && status != "ACTIVE" {
		err = fmt.Errorf("server %s is %s", name, status)
	}
	return "openstack:///" + created.ID, func(ctx context.Context) error {
		return o.removeParts(ctx, created.ID, portID, volumeID)
	}, err
}

// removeParts deletes a server and its parts, as far as they exist.
func (o *oldSystems) removeParts(ctx context.Context, server, port, volume string) error {
	if err := o.remove(ctx, server); err != nil {
		return err
	}
	var errs []error
	if port != "" {
		list, err := backend.AllPages(ctx, trunks.List(o.Network, trunks.ListOpts{PortID: port}), trunks.ExtractTrunks)
		errs = append(errs, err)
		for _, trunk := range list {
			errs = append(errs, trunks.Delete(ctx, o.Network, trunk.ID).ExtractErr())
		}
		errs = append(errs, ports.Delete(ctx, o.Network, port).ExtractErr())
	}
	if volume != "" {
		errs = append(errs, volumes.Delete(ctx, o.Volume, volume, volumes.DeleteOpts{}).ExtractErr())
	}
	for i, err := range errs {
		if isNotFound(err) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

func (o *oldSystems) port(ctx context.Context, options ports.CreateOpts) (string, error) {
	created, err := ports.Create(ctx, o.Network, options).Extract()
	if err != nil {
		return "", err
	}
	return created.ID, nil
}

func (o *oldSystems) volume(ctx context.Context, options volumes.CreateOpts) (string, error) {
	created, err := volumes.Create(ctx, o.Volume, options, nil).Extract()
	if err != nil {
		return "", err
	}
	return created.ID, o.await(ctx, "the volume is available", func() (bool, error) {
		v, err := volumes.Get(ctx, o.Volume, created.ID).Extract()
		return err == nil && v.Status == "available", err
	})
}

// state is everything about a server and its parts that must not change when Machinist takes the server over.
type state struct {
	server   map[string]any
	metadata map[string]string
	parts    map[string]string
}

func (o *oldSystems) state(ctx context.Context, id string) (state, error) {
	out := state{parts: map[string]string{}}
	result := servers.Get(ctx, o.Compute, id)
	s, err := result.Extract()
	if err != nil {
		return out, err
	}
	body, _ := result.Body.(map[string]any)
	server, _ := body["server"].(map[string]any)
	out.server, out.metadata = maps.Clone(server), s.Metadata
	delete(out.server, "metadata")
	delete(out.server, "updated") // Nova changes this time when the metadata change.
	add := func(id string, part any) error {
		raw, err := json.Marshal(part)
		out.parts[id] = string(raw)
		return err
	}
	list, err := backend.AllPages(ctx, ports.List(o.Network, ports.ListOpts{DeviceID: id}), ports.ExtractPorts)
	if err != nil {
		return out, err
	}
	for _, p := range list {
		p.UpdatedAt = time.Time{} // The network of a port that is being wired changes some seconds later.
		p.RevisionNumber, p.Status = 0, ""
		if err := add("port/"+p.ID, p); err != nil {
			return out, err
		}
	}
	for _, a := range s.AttachedVolumes {
		v, err := volumes.Get(ctx, o.Volume, a.ID).Extract()
		if err != nil {
			return out, err
		}
		if err := add("volume/"+v.ID, v); err != nil {
			return out, err
		}
	}
	return out, nil
}
