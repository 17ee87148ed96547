package app

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Rule: endpoints-by-flag.
func TestEndpointFlagsAllowAndDenyAddresses(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	for flags, c := range map[string]struct{ allowed, denied, message string }{
		"": {"192.0.2.1", "10.96.0.7", ""},
		"--acme-allow-address=127.0.0.0/8,10.96.0.7":      {"10.96.0.7", "10.96.0.1", ""},
		"--acme-deny-address=10.244.0.0/16":               {"10.0.0.1", "10.244.1.2", ""},
		"--acme-allow-address=localhost":                  {"", "", `--acme-allow-address: "localhost"`},
		"--acme-deny-address=10.0.0.0/8,10.0.0.0/33":      {"", "", `--acme-deny-address: "10.0.0.0/33"`},
		"--acme-allow-address=::1 --acme-deny-address=::": {"::1", "::", ""},
	} {
		var f EndpointFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.AddFlags(fs, "acme")
		if err := fs.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		rules, err := f.Rules()
		if c.message != "" {
			if err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%q: got %v, want an error with %q", flags, err, c.message)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", flags, err)
		}
		if err := rules.Check(netip.MustParseAddr(c.allowed)); err != nil {
			t.Errorf("%q: got %v for %s, want it allowed", flags, err, c.allowed)
		}
		if err := rules.Check(netip.MustParseAddr(c.denied)); err == nil {
			t.Errorf("%q: %s is allowed", flags, c.denied)
		}
	}
}
