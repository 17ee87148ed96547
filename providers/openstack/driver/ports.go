package driver

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsecurity"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/trunks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"machinist.dev/machinist/providers/openstack/machine"
)

// portsOf finds the owner's ports of all attempts by their descriptions.
func (c *clients) portsOf(ctx context.Context, own owner) ([]ports.Port, error) {
	all, err := allPages(ctx, c.network, ports.List(c.network, ports.ListOpts{Description: own.description()}),
		ports.ExtractPorts)
	if err != nil {
		return nil, translate(ctx, err, "list ports")
	}
	return all, nil
}

func (c *clients) createPort(ctx context.Context, r *serverRequest, i int) (string, error) {
	p, name := r.spec.Ports[i], portName(r.name, i)
	field := fmt.Sprintf("ports[%d]", i)
	network, err := c.networkID(ctx, field+".network", p.Network)
	if err != nil {
		return "", err
	}
	options := ports.CreateOpts{NetworkID: network, Name: name, Description: r.own.description()}
	var addresses []ports.IP
	for j, a := range p.FixedAddresses {
		ip := ports.IP{IPAddress: a.Address}
		if a.Subnet != "" {
			at := fmt.Sprintf("%s.fixedAddresses[%d].subnet", field, j)
			if ip.SubnetID, err = c.subnetID(ctx, at, a.Subnet, network); err != nil {
				return "", err
			}
		}
		addresses = append(addresses, ip)
	}
	if addresses != nil {
		options.FixedIPs = addresses
	}
	for _, pair := range p.AllowedAddressPairs {
		options.AllowedAddressPairs = append(options.AllowedAddressPairs,
			ports.AddressPair{IPAddress: pair.Address, MACAddress: pair.MACAddress})
	}
	if unfiltered(p) {
		options.SecurityGroups = &[]string{}
	} else if refs := r.spec.GroupsOf(p); len(refs) > 0 {
		groups, err := c.securityGroupIDs(ctx, groupsField(p, i), refs)
		if err != nil {
			return "", err
		}
		options.SecurityGroups = &groups
	}
	var builder ports.CreateOptsBuilder = options
	if p.PortSecurity != nil {
		builder = portsecurity.PortCreateOptsExt{CreateOptsBuilder: builder, PortSecurityEnabled: p.PortSecurity}
	}
	if p.VNICType != "" {
		builder = portsbinding.CreateOptsExt{CreateOptsBuilder: builder, VNICType: p.VNICType}
	}
	created, err := ports.Create(ctx, c.network, builder).Extract()
	if err != nil {
		return "", createError(ctx, err, "create port "+name, field)
	}
	return created.ID, nil
}

// unfiltered reports whether port security is disabled, so that the port has no security groups.
func unfiltered(p machine.Port) bool { return p.PortSecurity != nil && !*p.PortSecurity }

// groupsField returns the field that determines the security groups of a port.
func groupsField(p machine.Port, i int) string {
	if p.SecurityGroups != nil {
		return fmt.Sprintf("ports[%d].securityGroups", i)
	}
	return "securityGroups"
}

// createTrunk makes a port the parent of a trunk, unless it already has one.
func (c *clients) createTrunk(ctx context.Context, r *serverRequest, i int, port string) error {
	existing, err := c.trunksOf(ctx, port)
	if err != nil || len(existing) > 0 {
		return err
	}
	_, err = trunks.Create(ctx, c.network, trunks.CreateOpts{PortID: port, Name: portName(r.name, i),
		Description: r.own.description()}).Extract()
	if err != nil {
		return createError(ctx, err, "create trunk "+portName(r.name, i), fmt.Sprintf("ports[%d].trunk", i))
	}
	return nil
}

// trunksOf returns the trunks of a port. Without trunk support in Neutron, the result is empty.
func (c *clients) trunksOf(ctx context.Context, port string) ([]trunks.Trunk, error) {
	all, err := allPages(ctx, c.network, trunks.List(c.network, trunks.ListOpts{PortID: port}), trunks.ExtractTrunks)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, translate(ctx, err, "list trunks")
	}
	return all, nil
}

// deletePorts requests the deletion of unused ports and returns what still exists.
func (c *clients) deletePorts(ctx context.Context, all []ports.Port, lookup *serverLookup) (left []string, err error) {
	for i := range all {
		p := &all[i]
		if p.DeviceID != "" {
			// A port may still contain the ID of a deleted server.
			if exists, err := lookup.exists(ctx, p.DeviceID); err != nil {
				return nil, err
			} else if exists {
				continue
			}
		}
		refused, err := c.deletePort(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		left = append(left, "port "+p.ID+refused)
	}
	return left, nil
}

// deletePort deletes a port and its trunk, if they exist. If the port is in use, it returns OpenStack's answer, and the
// next call tries again.
func (c *clients) deletePort(ctx context.Context, id string) (refused string, err error) {
	err = ports.Delete(ctx, c.network, id).ExtractErr()
	if err == nil || isAbsent(err) {
		return "", nil
	}
	if !isConflict(err) {
		return "", translate(ctx, err, "delete port "+id)
	}
	refused = answerText(err)
	existing, listErr := c.trunksOf(ctx, id)
	if listErr != nil {
		return "", listErr
	}
	for _, trunk := range existing {
		if err := trunks.Delete(ctx, c.network, trunk.ID).ExtractErr(); err != nil && !isAbsent(err) && !isConflict(err) {
			return "", translate(ctx, err, "delete trunk "+trunk.ID)
		}
	}
	return refused, nil
}
