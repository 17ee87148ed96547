package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/providers/vsphere/driver"
)

func TestInvalidFlagsAreRefusedWithName(t *testing.T) {
	const lab = "--vsphere-vcenter=lab=https://vcenter.example "
	for flags, message := range map[string]string{
		"":  "--vsphere-vcenter is not set",
		lab: "",
		lab + "--vsphere-vcenter=b=https://10.0.0.5:8443/sdk":                 "",
		"--vsphere-vcenter=lab=http://vcenter.example":                        "--vsphere-plain-http",
		"--vsphere-vcenter=lab=http://vcenter.example --vsphere-plain-http":   "",
		"--vsphere-vcenter=lab=vcenter.example":                               "is not a URL",
		"--vsphere-vcenter=lab=https://user:password@vcenter.example":         "is not a URL",
		"--vsphere-vcenter=Lab_1=https://vcenter.example":                     `"Lab_1" of a vCenter is not a DNS label`,
		"--vsphere-vcenter=lab=https://localhost":                             "--vsphere-allow-address",
		"--vsphere-vcenter=lab=https://localhost --vsphere-allow-address=::1": "",
		lab + "--vsphere-create-settle=0s":                                    "--vsphere-create-settle is 0s",
		lab + "--vsphere-allow-address=10.0.0.0/33":                           `--vsphere-allow-address: "10.0.0.0/33"`,
		lab + "--vsphere-deny-address=pods":                                   `--vsphere-deny-address: "pods"`,
		lab + "--vsphere-create-settle=30s":                                   "",
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
