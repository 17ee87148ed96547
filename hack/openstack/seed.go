package openstack

import (
	"context"
	"fmt"
	"strings"
)

// SeedObjects contains the objects that exist at the start of a cloud, by name.
type SeedObjects struct {
	Project, ProjectID string // the project of the user
	User, UserID       string // a user with the role member
	Region             string

	Flavors        map[string]string  // m1.small, m1.medium, diskless, gpu, vgpu, impossible
	Images         map[string]string  // debian-12 (tagged machinist, os_distro debian), ubuntu-22.04
	Networks       map[string]Network // nodes (10.80.0.0/16), storage (10.81.0.0/16)
	SecurityGroups map[string]string  // default, workers
	ServerGroups   map[string]string  // workers: soft-anti-affinity
	VolumeTypes    map[string]string  // standard (the default), fast
	KeyPairs       []string           // machinist
	Zones          []string           // az-1, az-2, az-3: one host each

	ApplicationCredential Credential // a credential of the user
}

// Network contains the IDs of a Neutron network and of its only subnet, and the address range of the subnet.
type Network struct{ ID, SubnetID, CIDR string }

// Credential contains the ID and the secret of an application credential.
type Credential struct{ ID, Secret string }

func (c *Cloud) seed(ctx context.Context) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	member, err := c.member(ctx)
	if err != nil {
		return err
	}
	s := &seeder{
		URL: c.settings.URL, admin: admin, member: member,
		seeded: SeedObjects{
			Project: c.settings.Project, ProjectID: member.projectID,
			User: c.settings.User, UserID: member.userID, Region: c.settings.Region,
			Flavors: map[string]string{}, Images: map[string]string{}, Networks: map[string]Network{},
			SecurityGroups: map[string]string{}, ServerGroups: map[string]string{}, VolumeTypes: map[string]string{},
		},
	}
	for _, step := range []func(context.Context) error{
		s.zones, s.flavors, s.images, s.networks, s.securityGroups, s.volumeTypes, s.compute, s.applicationCredential,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.seeded = s.seeded
	return c.writeClouds()
}

type seeder struct {
	URL           urls
	admin, member *session
	seeded        SeedObjects
}

type created map[string]struct {
	ID     any    // a number for aggregates, else a string
	Secret string // only for credentials
}

func create(ctx context.Context, by *session, url, kind string, fields map[string]any) (string, error) {
	var answer created
	err := by.do(ctx, "POST", url, map[string]any{kind: fields}, &answer)
	return fmt.Sprint(answer[kind].ID), err
}

// zones assigns each host to its own availability zone.
func (s *seeder) zones(ctx context.Context) error {
	for _, compute := range NovaCompute() {
		zone, err := AvailabilityZone(compute)
		if err != nil {
			return err
		}
		id, err := create(ctx, s.admin, s.URL.Nova+"/os-aggregates", "aggregate", map[string]any{
			"name": zone, "availability_zone": zone,
		})
		if err != nil {
			return err
		}
		add := map[string]any{"add_host": map[string]any{"host": host(compute)}}
		if err := s.admin.do(ctx, "POST", s.URL.Nova+"/os-aggregates/"+id+"/action", add, nil); err != nil {
			return err
		}
		s.seeded.Zones = append(s.seeded.Zones, zone)
	}
	return nil
}

func (s *seeder) flavors(ctx context.Context) error {
	for _, flavor := range []struct {
		name                string
		vcpus, memory, disk int // memory in MiB, disk in GiB
		extra               map[string]string
	}{
		{"m1.small", 1, 512, 5, nil},
		{"m1.medium", 2, 2048, 20, nil},
		{"diskless", 1, 512, 0, nil}, // for servers that boot from a volume
		{"gpu", 2, 2048, 20, map[string]string{"pci_passthrough:alias": "a100:2"}},
		{"vgpu", 2, 2048, 20, map[string]string{"resources:VGPU": "1"}},
		{"impossible", 512, 2048, 20, nil},
	} {
		id, err := create(ctx, s.admin, s.URL.Nova+"/flavors", "flavor", map[string]any{
			"name": flavor.name, "vcpus": flavor.vcpus, "ram": flavor.memory, "disk": flavor.disk,
		})
		if err != nil {
			return err
		}
		if flavor.extra != nil {
			url := s.URL.Nova + "/flavors/" + id + "/os-extra_specs"
			body := map[string]any{"extra_specs": flavor.extra}
			if err := s.admin.do(ctx, "POST", url, body, nil); err != nil {
				return err
			}
		}
		s.seeded.Flavors[flavor.name] = id
	}
	return nil
}

func (s *seeder) images(ctx context.Context) error {
	for _, image := range []map[string]any{
		{"name": "debian-12", "tags": []string{"machinist"}, "os_distro": "debian"},
		{"name": "ubuntu-22.04", "os_distro": "ubuntu"},
	} {
		image["disk_format"], image["container_format"], image["visibility"] = "raw", "bare", "public"
		var answer struct{ ID string }
		if err := s.admin.do(ctx, "POST", s.URL.Glance+"/v2/images", image, &answer); err != nil {
			return err
		}
		// The simulated hosts never read the content of the image.
		content := []byte(strings.Repeat("machinist ", 1000))
		if err := s.admin.do(ctx, "PUT", s.URL.Glance+"/v2/images/"+answer.ID+"/file", content, nil); err != nil {
			return err
		}
		s.seeded.Images[image["name"].(string)] = answer.ID
	}
	return nil
}

func (s *seeder) networks(ctx context.Context) error {
	for name, cidr := range map[string]string{"nodes": "10.80.0.0/16", "storage": "10.81.0.0/16"} {
		network := Network{CIDR: cidr}
		var err error
		network.ID, err = create(ctx, s.member, s.URL.Neutron+"/v2.0/networks", "network", map[string]any{
			"name": name,
		})
		if err != nil {
			return err
		}
		network.SubnetID, err = create(ctx, s.member, s.URL.Neutron+"/v2.0/subnets", "subnet", map[string]any{
			"name": name, "network_id": network.ID, "ip_version": 4, "cidr": cidr,
		})
		if err != nil {
			return err
		}
		s.seeded.Networks[name] = network
	}
	return nil
}

// securityGroups creates a security group with the name "workers". The security group "default" exists already, because
// Neutron creates it together with the first network.
func (s *seeder) securityGroups(ctx context.Context) error {
	url := s.URL.Neutron + "/v2.0/security-groups"
	_, err := create(ctx, s.member, url, "security_group", map[string]any{"name": "workers"})
	if err != nil {
		return err
	}
	var list struct {
		Groups []struct{ ID, Name string } `json:"security_groups"`
	}
	if err := s.member.do(ctx, "GET", url, nil, &list); err != nil {
		return err
	}
	for _, group := range list.Groups {
		s.seeded.SecurityGroups[group.Name] = group.ID
	}
	return nil
}

func (s *seeder) volumeTypes(ctx context.Context) error {
	url := strings.Replace(s.URL.Cinder, "$(project_id)s", s.admin.projectID, 1)
	for _, name := range []string{"standard", "fast"} {
		id, err := create(ctx, s.admin, url+"/types", "volume_type", map[string]any{"name": name})
		if err != nil {
			return err
		}
		s.seeded.VolumeTypes[name] = id
	}
	return nil
}

func (s *seeder) compute(ctx context.Context) error {
	// The private key was deleted. The key is not needed, because no guest boots.
	const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f machinist"
	_, err := create(ctx, s.member, s.URL.Nova+"/os-keypairs", "keypair", map[string]any{
		"name": "machinist", "type": "ssh", "public_key": publicKey,
	})
	if err != nil {
		return err
	}
	s.seeded.KeyPairs = []string{"machinist"}
	id, err := create(ctx, s.member, s.URL.Nova+"/os-server-groups", "server_group", map[string]any{
		"name": "workers", "policy": "soft-anti-affinity",
	})
	s.seeded.ServerGroups["workers"] = id
	return err
}

func (s *seeder) applicationCredential(ctx context.Context) error {
	var answer created
	url := s.URL.Keystone + "/users/" + s.member.userID + "/application_credentials"
	body := map[string]any{"application_credential": map[string]any{"name": "machinist", "unrestricted": false}}
	if err := s.member.do(ctx, "POST", url, body, &answer); err != nil {
		return err
	}
	credential := answer["application_credential"]
	s.seeded.ApplicationCredential = Credential{ID: fmt.Sprint(credential.ID), Secret: credential.Secret}
	return nil
}
