package driver

import (
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: libvirt-endpoints-by-flag.
func TestCredentialsAllowOnlySomeURIs(t *testing.T) {
	o := Options{Sockets: []string{"/run/libvirt/libvirt-sock", "/srv/s"}, Hosts: []string{"h.example", "::1"},
		PlainTCP: true}
	strict := Options{}
	for _, c := range []struct {
		options *Options
		uri     string
		// network, address and driver are the expected result. If an error is expected, it must have this code, and its
		// message must contain these words.
		network, address, driver string
		code                     provider.Code
		words                    string
	}{
		{&o, "qemu+unix:///system", "unix", "/run/libvirt/libvirt-sock", "qemu:///system", "", ""},
		{&o, "qemu+unix:///session?socket=/srv/s", "unix", "/srv/s", "qemu:///session", "", ""},
		{&o, " qemu+tcp://h.example/system\n", "tcp", "h.example:16509", "qemu:///system", "", ""},
		{&o, "qemu+tcp://[::1]:99/system", "tcp", "[::1]:99", "qemu:///system", "", ""},
		{&o, "test+tcp://h.example/default", "tcp", "h.example:16509", "test:///default", "", ""},

		{&strict, "qemu+unix:///system", "", "", "", provider.PermissionDenied, "--libvirt-socket"},
		{&o, "qemu+unix:///system?socket=/etc/passwd", "", "", "", provider.PermissionDenied, "--libvirt-socket"},
		{&o, "qemu+unix:///system?socket=/srv/../srv/s", "", "", "", provider.InvalidArgument, "absolute path"},
		{&o, "qemu+unix:///system?socket=srv", "", "", "", provider.InvalidArgument, "absolute path"},
		{&o, "qemu+unix:///system?mode=legacy", "", "", "", provider.InvalidArgument, `"mode"`},
		{&o, "qemu+unix://h.example/system", "", "", "", provider.InvalidArgument, "a host"},
		{&strict, "qemu+tcp://h.example/system", "", "", "", provider.PermissionDenied, "--libvirt-plain-tcp"},
		{&o, "qemu+tcp://other.example/system", "", "", "", provider.PermissionDenied, "--libvirt-host"},
		{&o, "qemu+tcp:///system", "", "", "", provider.InvalidArgument, "no host"},
		{&o, "qemu+tcp://h.example:0/system", "", "", "", provider.InvalidArgument, "port"},
		{&o, "qemu+tcp://root@h.example/system", "", "", "", provider.InvalidArgument, "without a user"},
		{&o, "qemu+tcp://h.example/system?command=/bin/sh", "", "", "", provider.InvalidArgument, `"command"`},
		{&o, "qemu+ssh://h.example/system", "", "", "", provider.InvalidArgument, `"ssh"`},
		{&o, "qemu+ext:///system?command=/bin/sh", "", "", "", provider.InvalidArgument, `"ext"`},
		{&o, "qemu:///system", "", "", "", provider.InvalidArgument, "transport"},
		{&o, "xen+tcp://h.example/system", "", "", "", provider.InvalidArgument, "xen"},
		{&o, "qemu+tcp://h.example/embed?root=/", "", "", "", provider.InvalidArgument, "qemu:///embed"},
		{&o, "", "", "", "", provider.InvalidArgument, "missing"},
		{&o, "qemu+tcp://h.example/system?" + strings.Repeat("x", 2000), "", "", "", provider.InvalidArgument, "longer"},
		{&strict, "qemu+tls://h.example/system", "", "", "", provider.InvalidArgument, "ca.crt"},
	} {
		e, err := c.options.parse(provider.NewCredentials(map[string][]byte{"uri": []byte(c.uri)}))
		if c.code == "" {
			if err != nil || e.network != c.network || e.address != c.address || e.driver != c.driver {
				t.Errorf("%q: got %s %s %s, %v", c.uri, e.network, e.address, e.driver, err)
			}
			continue
		}
		if provider.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: got %v, want %s with %q", c.uri, err, c.code, c.words)
		}
	}
}

func TestUnusedKeysAreRefused(t *testing.T) {
	o := Options{PlainTCP: true}
	for key, words := range map[string]string{"tls.key": "only allowed with the transport tls", "password": "unknown key"} {
		_, err := o.parse(provider.NewCredentials(map[string][]byte{"uri": []byte("qemu+tcp://h/system"), key: []byte("s3cret")}))
		if provider.CodeOf(err) != provider.InvalidArgument || !strings.Contains(err.Error(), words) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want InvalidArgument with %q and without the value", key, err, words)
		}
	}
	if _, err := o.parse(provider.Credentials{}); provider.CodeOf(err) != provider.Unauthenticated {
		t.Errorf("no credentials: got %v, want Unauthenticated", err)
	}
}
