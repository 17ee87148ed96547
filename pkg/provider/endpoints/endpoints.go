// Package endpoints restricts the addresses to which a driver connects. Users choose endpoints in credentials, and the
// cloud chooses endpoints in its answers. Without a restriction, such an endpoint could direct the driver to programs
// on its host, to the metadata service, and to Services of its cluster.
//
// Rules check an address when the connection is opened, because a name can resolve to another address at any time.
package endpoints

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Rules decide to which addresses a driver may connect. The zero value denies unspecified, loopback, link-local and
// multicast addresses, and the addresses of metadata services.
type Rules struct {
	// Allowed contains the ranges to which the driver may connect even if Denied or the built-in rules deny them.
	Allowed []netip.Prefix
	// Denied are additional ranges to which the driver may not connect, such as the range of a cluster's Services.
	Denied []netip.Prefix
}

// DeniedError reports that the driver may not connect to an address.
type DeniedError struct {
	Address netip.Addr
	// Kind describes the address, such as "a loopback address".
	Kind string
}

// Error returns a message that contains the address.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("connections to %s are denied, because it is %s", e.Address, e.Kind)
}

// Check returns a *DeniedError for an address to which the driver may not connect.
func (r Rules) Check(address netip.Addr) error {
	address = address.WithZone("").Unmap() // A prefix contains no address with a zone.
	if contains(r.Allowed, address) {
		return nil
	}
	for _, a := range []netip.Addr{address, embedded(address)} {
		if kind := r.kindOf(a); kind != "" && !contains(r.Allowed, a) {
			return &DeniedError{Address: address, Kind: kind}
		}
	}
	return nil
}

// CheckHost returns a *DeniedError for a denied address or a name of the local host. CheckHost does not resolve names.
// When a connection is opened, Control checks the address to which a name resolved.
func (r Rules) CheckHost(host string) error {
	if address, err := netip.ParseAddr(host); err == nil {
		return r.Check(address)
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		return nil
	}
	err := r.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if err == nil || r.Check(netip.IPv6Loopback()) == nil {
		return nil
	}
	return err
}

// Control checks the address of each connection before the connection is opened. Use it as the field Control of a
// net.Dialer.
func (r Rules) Control(network, address string, _ syscall.RawConn) error {
	if strings.HasPrefix(network, "unix") {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("check the address %q of a connection: %w", address, err)
	}
	return r.Check(to.Addr())
}

// Dialer returns a dialer that obeys the rules. The timeouts of the Dialer are those of http.DefaultTransport.
func (r Rules) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: r.Control}
}

// AllowHosts returns rules that also allow the given hosts if they are addresses. Use AllowHosts for the hosts in
// flags. If an administrator sets an address in a flag, connections to the address are intended. AllowHosts ignores
// host names, because the administrator may not control the addresses to which a name resolves.
func (r Rules) AllowHosts(hosts ...string) Rules {
	r.Allowed = slices.Clone(r.Allowed)
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			address = address.WithZone("").Unmap()
			r.Allowed = append(r.Allowed, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return r
}

var metadata = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	broadcast   = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// kindOf describes an address that is denied, or returns "".
func (r Rules) kindOf(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return ""
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast(), a == broadcast:
		return "a multicast address"
	case contains(metadata, a):
		return "the address of a metadata service"
	}
	for _, denied := range r.Denied {
		if denied.Contains(a) {
			return "in the denied range " + denied.String()
		}
	}
	return ""
}

var (
	compatible = netip.MustParsePrefix("::/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// embedded returns the IPv4 address to which a translator or a tunnel forwards packets for an IPv6 address. For all
// other addresses, the result is invalid.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case compatible.Contains(a), nat64.Contains(a), localNAT64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return netip.Addr{}
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
