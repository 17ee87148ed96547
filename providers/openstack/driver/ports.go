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

// portsOf are all ports whose description names the owner, of whichever attempt.
func (c *clients) portsOf(ctx context.Context, own owner) ([]ports.Port, error) {
	all, err := every(ctx, ports.List(c.network, ports.ListOpts{Description: own.description()}), ports.ExtractPorts)
	if err != nil {
		return nil, translate(ctx, err, "list ports")
	}
	return all, nil
}

// makePort makes the port of a server that has none of that name.
func (c *clients) makePort(ctx context.Context, o *order, i int) (string, error) {
	p, name := o.spec.Ports[i], portName(o.name, i)
	field := fmt.Sprintf("ports[%d]", i)
	network, err := c.networkOf(ctx, field+".network", p.Network)
	if err != nil {
		return "", err
	}
	plain := ports.CreateOpts{NetworkID: network, Name: name, Description: o.own.description()}
	var addresses []ports.IP
	for j, a := range p.FixedAddresses {
		ip := ports.IP{IPAddress: a.Address}
		if a.Subnet != "" {
			at := fmt.Sprintf("%s.fixedAddresses[%d].subnet", field, j)
			if ip.SubnetID, err = c.subnetOf(ctx, at, a.Subnet, network); err != nil {
				return "", err
			}
		}
		addresses = append(addresses, ip)
	}
	if addresses != nil {
		plain.FixedIPs = addresses
	}
	for _, pair := range p.AllowedAddressPairs {
		plain.AllowedAddressPairs = append(plain.AllowedAddressPairs,
			ports.AddressPair{IPAddress: pair.Address, MACAddress: pair.MACAddress})
	}
	if open(p) {
		plain.SecurityGroups = &[]string{}
	} else if refs := o.spec.GroupsOf(p); len(refs) > 0 {
		groups, err := c.groupsOf(ctx, groupsField(p, i), refs)
		if err != nil {
			return "", err
		}
		plain.SecurityGroups = &groups
	}
	var options ports.CreateOptsBuilder = plain
	if p.PortSecurity != nil {
		options = portsecurity.PortCreateOptsExt{CreateOptsBuilder: options, PortSecurityEnabled: p.PortSecurity}
	}
	if p.VNICType != "" {
		options = portsbinding.CreateOptsExt{CreateOptsBuilder: options, VNICType: p.VNICType}
	}
	made, err := ports.Create(ctx, c.network, options).Extract()
	if err != nil {
		return "", creating(ctx, err, "create port "+name, field)
	}
	return made.ID, nil
}

// open reports whether a port has no port security, and so no security groups.
func open(p machine.Port) bool { return p.PortSecurity != nil && !*p.PortSecurity }

// groupsField is the field that a port's security groups come from.
func groupsField(p machine.Port, i int) string {
	if p.SecurityGroups != nil {
		return fmt.Sprintf("ports[%d].securityGroups", i)
	}
	return "securityGroups"
}

// makeTrunk makes a port the parent of a trunk, unless it is one.
func (c *clients) makeTrunk(ctx context.Context, o *order, i int, port string) error {
	there, err := c.trunksOf(ctx, port)
	if err != nil || len(there) > 0 {
		return err
	}
	_, err = trunks.Create(ctx, c.network, trunks.CreateOpts{PortID: port, Name: portName(o.name, i),
		Description: o.own.description()}).Extract()
	if err != nil {
		return creating(ctx, err, "create trunk "+portName(o.name, i), fmt.Sprintf("ports[%d].trunk", i))
	}
	return nil
}

// trunksOf are the trunks of a port. Where Neutron does not know trunks there are none.
func (c *clients) trunksOf(ctx context.Context, port string) ([]trunks.Trunk, error) {
	all, err := every(ctx, trunks.List(c.network, trunks.ListOpts{PortID: port}), trunks.ExtractTrunks)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, translate(ctx, err, "list trunks")
	}
	return all, nil
}

// removePorts asks for the deletion of ports, except those that a server has, and returns what is left.
func (c *clients) removePorts(ctx context.Context, all []ports.Port, servers *presence) (left []string, err error) {
	for i := range all {
		p := &all[i]
		if p.DeviceID != "" {
			// A port may still name the server that it had.
			if has, err := servers.exists(ctx, p.DeviceID); err != nil {
				return nil, err
			} else if has {
				continue
			}
		}
		refused, err := c.removePort(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		left = append(left, "port "+p.ID+refused)
	}
	return left, nil
}

// removePort removes a port and its trunk. Absent is success. If the port is in use, the answer is returned, and the
// next call tries again.
func (c *clients) removePort(ctx context.Context, id string) (refused string, err error) {
	err = ports.Delete(ctx, c.network, id).ExtractErr()
	if err == nil || absent(err) {
		return "", nil
	}
	if !conflicts(err) {
		return "", translate(ctx, err, "delete port "+id)
	}
	refused = inItsWords(err)
	there, listErr := c.trunksOf(ctx, id)
	if listErr != nil {
		return "", listErr
	}
	for _, trunk := range there {
		if err := trunks.Delete(ctx, c.network, trunk.ID).ExtractErr(); err != nil && !absent(err) && !conflicts(err) {
			return "", translate(ctx, err, "delete trunk "+trunk.ID)
		}
	}
	return refused, nil
}
