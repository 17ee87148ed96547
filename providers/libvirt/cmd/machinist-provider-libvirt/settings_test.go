package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/providers/libvirt/driver"
)

func TestInvalidFlagsAreRefusedWithName(t *testing.T) {
	for flags, message := range map[string]string{
		"": "",
		"--libvirt-socket=/run/libvirt/libvirt-sock":                       "",
		"--libvirt-socket=run/libvirt-sock":                                `"run/libvirt-sock" is not an absolute path`,
		"--libvirt-socket=/a,/b --libvirt-socket=c":                        `"c" is not an absolute path`,
		"--libvirt-create-settle=0s":                                       "--libvirt-create-settle is 0s",
		"--libvirt-allow-address=127.0.0.0/8,::1":                          "",
		"--libvirt-allow-address=localhost":                                `--libvirt-allow-address: "localhost"`,
		"--libvirt-deny-address=10.0.0.0/33":                               `--libvirt-deny-address: "10.0.0.0/33"`,
		"--libvirt-plain-tcp --libvirt-host=h --libvirt-create-settle=30s": "",
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
	if warnings := s.warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], "--libvirt-host") {
		t.Errorf("without the flag: %q", warnings)
	}
	s.hosts = []string{"server.example"}
	if warnings := s.warnings(); len(warnings) > 0 {
		t.Errorf("with the flag: %q", warnings)
	}
}
