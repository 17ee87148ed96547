package endpoints

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(t *testing.T, texts ...string) []netip.Prefix {
	t.Helper()
	ranges, err := ParseRanges(texts)
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

// Rule: endpoints-by-flag.
func TestAddressesOfHostAndClusterAreDenied(t *testing.T) {
	services := Rules{Denied: prefixes(t, "10.96.0.0/12", "fd00:10::/108")}
	loopback := Rules{Allowed: prefixes(t, "127.0.0.0/8", "::1"), Denied: services.Denied}
	for _, c := range []struct {
		host  string
		rules Rules
		// kind is a part of the description of a denied address, or empty for an allowed address.
		kind string
	}{
		{"192.0.2.1", services, ""},
		{"10.0.0.1", services, ""},
		{"192.168.1.1", services, ""},
		{"2001:db8::1", services, ""},
		{"identity.example.com", services, ""},
		{"notlocalhost", services, ""},

		{"127.0.0.1", Rules{}, "loopback"},
		{"127.255.0.9", Rules{}, "loopback"},
		{"::1", Rules{}, "loopback"},
		{"::ffff:127.0.0.1", Rules{}, "loopback"},
		{"::127.0.0.1", Rules{}, "loopback"},
		{"64:ff9b::7f00:1", Rules{}, "loopback"},
		{"2002:7f00:1::", Rules{}, "loopback"},
		{"localhost", Rules{}, "loopback"},
		{"LOCALHOST.", Rules{}, "loopback"},
		{"a.localhost", Rules{}, "loopback"},
		{"0.0.0.0", Rules{}, "unspecified"},
		{"0.1.2.3", Rules{}, "unspecified"},
		{"::", Rules{}, "unspecified"},
		{"169.254.169.254", Rules{}, "link-local"},
		{"::ffff:169.254.169.254", Rules{}, "link-local"},
		{"64:ff9b::a9fe:a9fe", Rules{}, "link-local"},
		{"64:ff9b:1::a9fe:a9fe", Rules{}, "link-local"},
		{"fe80::1", Rules{}, "link-local"},
		{"fe80::1%eth0", Rules{}, "link-local"},
		{"fd00:ec2::254", Rules{}, "metadata"},
		{"168.63.129.16", Rules{}, "metadata"},
		{"224.0.0.1", Rules{}, "multicast"},
		{"ff02::1", Rules{}, "multicast"},
		{"255.255.255.255", Rules{}, "multicast"},
		{"10.96.0.1", services, "10.96.0.0/12"},
		{"10.111.255.255", services, "10.96.0.0/12"},
		{"10.112.0.0", services, ""},
		{"::ffff:10.96.0.1", services, "10.96.0.0/12"},
		{"fd00:10::1", services, "fd00:10::/108"},

		{"127.0.0.1", loopback, ""},
		{"::ffff:127.0.0.1", loopback, ""},
		{"::1", loopback, ""},
		{"localhost", loopback, ""},
		{"169.254.169.254", loopback, "link-local"},
		{"localhost", Rules{Allowed: prefixes(t, "::1")}, ""},
		{"10.96.0.7", Rules{Allowed: prefixes(t, "10.96.0.7"), Denied: services.Denied}, ""},
		{"127.0.0.1", Rules{}.AllowHosts("hypervisor.example.com", "127.0.0.1"), ""},
		{"localhost", Rules{}.AllowHosts("localhost"), "loopback"},
	} {
		err := c.rules.CheckHost(c.host)
		denied, isDenied := errors.AsType[*DeniedError](err)
		if isDenied != (c.kind != "") || isDenied && !strings.Contains(denied.Error(), c.kind) {
			t.Errorf("%s: got %v, want %q", c.host, err, c.kind)
		}
	}
}

// The attacker writes a host name into a Secret, and controls the addresses to which this name resolves. The first
// addresses of the name may be harmless, so the address is checked when the connection is opened.
//
// Rule: endpoints-by-flag.
func TestAttackNameResolvesToMetadataService(t *testing.T) {
	resolver := resolveTo(t, netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fe80::1"))
	dialer := Rules{}.Dialer()
	dialer.Resolver = resolver
	for _, network := range []string{"tcp", "tcp4", "tcp6"} {
		conn, err := dialer.DialContext(t.Context(), network, "cloud.attacker.example.:443")
		if err == nil {
			_ = conn.Close()
		}
		if _, denied := errors.AsType[*DeniedError](err); !denied {
			t.Errorf("%s: got %v, want a denied connection", network, err)
		}
	}
	// A dialer with an allowed address connects to this address.
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	allowed := Rules{Allowed: prefixes(t, "127.0.0.1")}.Dialer()
	allowed.Resolver = resolveTo(t, netip.MustParseAddr("127.0.0.1"))
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := allowed.DialContext(t.Context(), "tcp4", "cloud.example.:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func resolveTo(t *testing.T, addresses ...netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(dnsAnswer(buffer[:n], addresses), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// dnsAnswer returns the answer to a DNS query, with the addresses that have the requested type.
// https://www.rfc-editor.org/rfc/rfc1035#section-4
func dnsAnswer(query []byte, addresses []netip.Addr) []byte {
	const headerBytes, typeA, typeAAAA = 12, 1, 28
	end := headerBytes
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the end of the name, the type and the class
	wanted := binary.BigEndian.Uint16(query[end-4:])
	answer := append([]byte{}, query[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	clear(answer[6:headerBytes])
	for _, a := range addresses {
		if a.Is4() && wanted != typeA || a.Is6() && wanted != typeAAAA {
			continue
		}
		answer[7]++
		// The answer contains a pointer to the name in the question, the class IN, and a time to live of one second.
		answer = append(answer, 0xc0, headerBytes, 0, byte(wanted), 0, 1, 0, 0, 0, 1, 0, byte(a.BitLen()/8))
		answer = append(answer, a.AsSlice()...)
	}
	return answer
}

func TestServiceRangeIsTheLargestPossible(t *testing.T) {
	for kubernetes, want := range map[string]string{
		"10.96.0.1":            "10.96.0.0/12",     // kubeadm
		"10.43.0.1":            "10.43.0.0/16",     // k3s
		"172.30.0.1":           "172.30.0.0/15",    // OpenShift
		"34.118.224.1":         "34.118.224.0/19",  // Google Kubernetes Engine
		"100.64.0.1":           "100.64.0.0/12",    // kOps
		"fd00:10:96::1":        "fd00:10:96::/108", // kubeadm
		"192.0.2.7":            "192.0.2.6/31",     // not a Service
		"0.0.0.0":              "0.0.0.0/32",
		"kubernetes.default":   "",
		"":                     "",
		"api.example.com:6443": "",
	} {
		got, ok := ServiceRange(kubernetes)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: got %s, %t, want %q", kubernetes, got, ok, want)
		}
	}
}

func TestParseRangesNamesInvalidText(t *testing.T) {
	got, err := ParseRanges([]string{"127.0.0.1", "10.96.0.1/12", "::1", "::ffff:192.0.2.1"})
	if err != nil || len(got) != 4 || got[0].String() != "127.0.0.1/32" || got[1].String() != "10.96.0.0/12" ||
		got[2].String() != "::1/128" || got[3].String() != "192.0.2.1/32" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, invalid := range []string{"", "localhost", "10.0.0.0/33", "10.0.0.1:80", "::ffff:10.0.0.0/104"} {
		if _, err := ParseRanges([]string{invalid}); err == nil || !strings.Contains(err.Error(), invalid) {
			t.Errorf("%q: got %v, want an error with the text", invalid, err)
		}
	}
}
