package machine

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxPorts          = 8
	maxFixedAddresses = 4
	maxAddressPairs   = 32
)

// macFormat is the only format of hardware addresses that Neutron accepts.
var macFormat = regexp.MustCompile(`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$`)

func (s *Spec) validatePorts() error {
	if n := len(s.Ports); n < 1 || n > maxPorts {
		return provider.InvalidField("ports", "has %d entries, not 1 to %d", n, maxPorts)
	}
	existing := map[string]bool{}
	for i := range s.Ports {
		p, at := &s.Ports[i], fmt.Sprintf("ports[%d]", i)
		if err := p.validate(at); err != nil {
			return err
		}
		if p.Existing != "" && existing[p.Existing] {
			return provider.InvalidField(at+".existing", "%.64q is used twice", p.Existing)
		}
		existing[p.Existing] = true
	}
	return nil
}

func (p *Port) validate(at string) error {
	if (p.Network == "") == (p.Existing == "") {
		return provider.InvalidField(at, "requires exactly one of network and existing")
	}
	if p.Existing != "" {
		return p.validateExisting(at)
	}
	checks := []func() error{
		func() error { return optionalName(at+".network", p.Network) },
		func() error { return p.validateFixedAddresses(at + ".fixedAddresses") },
		func() error { return p.validateSecurityGroups(at + ".securityGroups") },
		func() error { return p.validateAddressPairs(at + ".allowedAddressPairs") },
		func() error {
			return oneOf(at+".vnicType", p.VNICType, "normal", "direct", "macvtap", "direct-physical", "virtio-forwarder")
		},
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validateExisting refuses all other fields, because Machinist does not change an existing port.
func (p *Port) validateExisting(at string) error {
	if err := optionalName(at+".existing", p.Existing); err != nil {
		return err
	}
	value := reflect.ValueOf(*p)
	for field, of := range value.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "existing" && !of.IsZero() {
			return provider.InvalidField(at+"."+name, "is not allowed for the existing port %.64q", p.Existing)
		}
	}
	return nil
}

func (p *Port) validateFixedAddresses(at string) error {
	if n := len(p.FixedAddresses); n > maxFixedAddresses {
		return provider.InvalidField(at, "has %d entries, more than %d", n, maxFixedAddresses)
	}
	seen := map[netip.Addr]bool{}
	for i, f := range p.FixedAddresses {
		entry := fmt.Sprintf("%s[%d]", at, i)
		if f.Subnet == "" && f.Address == "" {
			return provider.InvalidField(entry, "requires subnet, address or both")
		}
		if err := optionalName(entry+".subnet", f.Subnet); err != nil {
			return err
		}
		if f.Address == "" {
			continue
		}
		address, err := netip.ParseAddr(f.Address)
		if err != nil || !isPlain(address) {
			return provider.InvalidField(entry+".address", "%.64q is not an address such as \"10.0.0.5\"", f.Address)
		}
		if seen[address] {
			return provider.InvalidField(entry+".address", "%s is used twice", address)
		}
		seen[address] = true
	}
	return nil
}

func (p *Port) validateSecurityGroups(at string) error {
	if p.unfiltered() && len(p.SecurityGroups) > 0 {
		return provider.InvalidField(at, "a port with portSecurity false cannot have security groups")
	}
	if p.SecurityGroups != nil && len(p.SecurityGroups) == 0 {
		return provider.InvalidField(at, "is empty: remove the field to use the top-level securityGroups")
	}
	return nameList(at, p.SecurityGroups)
}

func (p *Port) validateAddressPairs(at string) error {
	switch n := len(p.AllowedAddressPairs); {
	case n > maxAddressPairs:
		return provider.InvalidField(at, "has %d entries, more than %d", n, maxAddressPairs)
	case n > 0 && p.unfiltered():
		return provider.InvalidField(at,
			"a port with portSecurity false cannot have address pairs: it may send from any address")
	}
	type pair struct {
		prefix netip.Prefix
		mac    string
	}
	seen := map[pair]bool{}
	for i, a := range p.AllowedAddressPairs {
		entry := fmt.Sprintf("%s[%d]", at, i)
		prefix, err := addressOrNetwork(entry+".address", a.Address)
		if err != nil {
			return err
		}
		mac := strings.ToLower(a.MACAddress)
		if mac != "" && !macFormat.MatchString(mac) ||
			slices.Contains([]string{"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"}, mac) {
			return provider.InvalidField(entry+".macAddress",
				"%.64q is not a hardware address such as \"fa:16:3e:00:00:01\"", a.MACAddress)
		}
		if seen[pair{prefix, mac}] {
			return provider.InvalidField(entry, "%.64q is used twice", a.Address)
		}
		seen[pair{prefix, mac}] = true
	}
	return nil
}

// addressOrNetwork converts an address to a network with only this address.
func addressOrNetwork(field, text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, provider.InvalidField(field,
			"is required: set an address or a network such as \"10.244.0.0/16\"")
	}
	if address, err := netip.ParseAddr(text); err == nil && isPlain(address) {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !isPlain(prefix.Addr()) {
		return netip.Prefix{}, provider.InvalidField(field,
			"%.64q is neither an address nor a network such as \"10.244.0.0/16\"", text)
	}
	// In a value such as 10.244.0.1/16, it is unclear whether the user means the address or the network. Neutron would
	// store the value unchanged.
	if prefix.Masked() != prefix {
		return netip.Prefix{}, provider.InvalidField(field, "%s is not the first address of a network; use %s", text,
			prefix.Masked())
	}
	return prefix, nil
}

// isPlain reports whether Neutron accepts an address in this notation.
func isPlain(a netip.Addr) bool { return a.Zone() == "" && !a.Is4In6() }

func (p *Port) unfiltered() bool { return p.PortSecurity != nil && !*p.PortSecurity }
