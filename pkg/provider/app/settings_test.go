package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// Rule: bad-flags-end-process.
func TestInvalidFlagsAreRefusedByName(t *testing.T) {
	for flag, refused := range map[string]string{
		"":                           "",
		"--max-in-flight-creates=10": "",
		"--max-in-flight-creates=-1": "--max-in-flight-creates is -1",
		"--cloud-qps=-1":             "--cloud-qps is -1",
		"--cloud-burst=0":            "--cloud-burst is 0",
		"--concurrent-machines=0":    "--concurrent-machines is 0",
		"--bootstrap-endpoint=http:": "--bootstrap-endpoint is \"http:\"",
		"--bootstrap-token-groups=system:bootstrappers:a,system:masters": "--bootstrap-token-groups contains \"system:masters\"",
		"--secret-namespaces=a,b":                             "",
		"--secret-namespaces=a,*":                             "--secret-namespaces contains \"*\"",
		"--secret-namespaces=A_b":                             "--secret-namespaces contains \"A_b\"",
		"--secret-namespaces=":                                "--secret-namespaces is empty",
		"--orphan-action=report":                              "",
		"--orphan-action=none":                                "--orphan-action is \"none\"",
		"--orphan-max-deletes=0":                              "--orphan-max-deletes is 0",
		"--orphan-min-age=-1s":                                "--orphan-min-age is -1s",
		"--preserve-timeout=0":                                "--preserve-timeout is 0s",
		"--preserve-limit=0":                                  "--preserve-limit is 0; it must be at least 1",
		"--approve-guest-addresses=10.0.0.0/24,2001:db8::/64": "",
		"--approve-guest-addresses=10.0.0.0/24,10.0.0.0/33":   `--approve-guest-addresses: "10.0.0.0/33"`,
		"--approve-guest-addresses=::/0":                      "--approve-guest-addresses contains ::/0",

		"--deny-serving-addresses=10.96.0.0/12,192.0.2.1": "",
		"--deny-serving-addresses=services":               `--deny-serving-addresses: "services"`,

		"--orphan-check-period=0": "--orphan-check-period is 0s",
	} {
		s, flags := defaultSettings(), pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(flags)
		if err := flags.Parse(strings.Fields(flag)); err != nil {
			t.Fatal(err)
		}
		err := s.validate()
		if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%q: got %v, want an error that contains %q", flag, err, refused)
		}
	}
}

// Rule: no-serving-certificate-for-reserved-addresses.
func TestAPIServersGetNoServingCertificate(t *testing.T) {
	s := &settings{bootstrapEndpoint: "https://api.example:6443", deniedAddresses: []string{"10.96.0.0/12"}}
	got, err := s.reservedNames(&rest.Config{Host: "https://[2001:db8::1]:6443"})
	if err != nil {
		t.Fatal(err)
	}
	if hosts := strings.Join(got.Hosts, " "); hosts != "2001:db8::1 api.example" || len(got.Ranges) != 1 {
		t.Errorf("reserved %+v", got)
	}
}

// Without flags, an instance gets the current endpoint in the target kubeconfig, which may appear or change after the
// start of the process.
//
// Rules kubeconfig-file-awaited, renewed-kubeconfig-used.
func TestTargetAPIUsesFlagsBeforeTheCurrentKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("FILE"), 0o600); err != nil {
		t.Fatal(err)
	}
	var current *rest.Config
	kubeconfig := func() (*rest.Config, error) {
		if current == nil {
			return nil, errors.New("no such file yet")
		}
		return current, nil
	}
	byKubeconfig, err := (&settings{}).targetAPI(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	byFlags, err := (&settings{bootstrapEndpoint: "https://flag:1", bootstrapCAFile: file}).targetAPI(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&settings{bootstrapCAFile: file + ".none"}).targetAPI(kubeconfig); err == nil ||
		!strings.Contains(err.Error(), "--bootstrap-ca-file") {
		t.Errorf("a missing CA file: %v", err)
	}
	if _, err := byKubeconfig(); err == nil {
		t.Error("targetAPI returned an endpoint without a kubeconfig")
	}
	for _, test := range []struct {
		config  *rest.Config
		url, ca string
	}{
		{&rest.Config{Host: "https://one:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("DATA")}}, "https://one:6443", "DATA"},
		{&rest.Config{Host: "https://two:6443", TLSClientConfig: rest.TLSClientConfig{CAFile: file}}, "https://two:6443", "FILE"},
	} {
		current = test.config
		if api, err := byKubeconfig(); err != nil || api.URL != test.url || string(api.CABundle) != test.ca {
			t.Errorf("got %s with %q (%v), want %s with %q", api.URL, api.CABundle, err, test.url, test.ca)
		}
	}
	current = nil
	if api, err := byFlags(); err != nil || api.URL != "https://flag:1" || string(api.CABundle) != "FILE" {
		t.Errorf("by flags: got %s with %q (%v)", api.URL, api.CABundle, err)
	}
}
