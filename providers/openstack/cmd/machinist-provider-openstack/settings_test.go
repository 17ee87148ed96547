package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/providers/openstack/driver"
)

func TestInvalidFlagsAreRefusedWithName(t *testing.T) {
	for flags, message := range map[string]string{
		"": "",
		"--openstack-auth-url=https://identity.example/v3":                        "",
		"--openstack-auth-url=http://identity.example/v3":                         "--openstack-plain-http",
		"--openstack-auth-url=http://identity.example/v3 --openstack-plain-http":  "",
		"--openstack-auth-url=identity.example":                                   `"identity.example" is not a URL`,
		"--openstack-create-settle=0s":                                            "--openstack-create-settle is 0s",
		"--openstack-auth-url=https://127.0.0.1:5000/v3":                          "",
		"--openstack-auth-url=https://localhost/v3":                               "--openstack-allow-address",
		"--openstack-auth-url=https://localhost/v3 --openstack-allow-address=::1": "",
		"--openstack-allow-address=10.0.0.0/33":                                   `--openstack-allow-address: "10.0.0.0/33"`,
		"--openstack-deny-address=pods":                                           `--openstack-deny-address: "pods"`,
		"--openstack-regional-provider-ids --openstack-create-settle=30s":         "",
		"--openstack-auth-url=https://a.example/v3,https://user:b@b.example":      "is not a URL",
		"--openstack-auth-url=https://a.example --openstack-auth-url=ftp://b.org": "is not a URL",
	} {
		var s settings
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(fs)
		if err := fs.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		o, err := s.options()
		if err == nil {
			_, err = driver.New(o)
		}
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %v, want an error with %q", flags, err, message)
		}
	}
}

// If the flags do not limit the servers in credentials, the process must say so.
func TestWarnsOfUnlimitedServers(t *testing.T) {
	var s settings
	if warnings := s.warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "--openstack-auth-url") {
		t.Errorf("without the flag: %q", warnings)
	}
	s.authURLs = []string{"server.example"}
	if warnings := s.warnings(); len(warnings) > 0 {
		t.Errorf("with the flag: %q", warnings)
	}
}
