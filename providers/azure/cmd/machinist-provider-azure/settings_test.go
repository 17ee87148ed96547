package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptionsErrorsNameFlag(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const endpoints = "--azure-authority-host=https://login.example --azure-resource-manager=https://arm.example "
	for flags, message := range map[string]string{
		"--azure-workload-identity-for=team-a/33333333-3333-4333-8333-333333333333": "",
		"--azure-workload-identity-for=*/33333333-3333-4333-8333-333333333333":      "--azure-workload-identity-for",
		"--azure-workload-identity-for=team-a":                                      "NAMESPACE/CLIENT-ID",
		"":                                                                          "",
		"--azure-cloud=AzureChina":                                                  "",
		"--azure-cloud=Azure":                                                       `--azure-cloud is "Azure"`,
		"--azure-cloud=Private":                                                     "needs --azure-authority-host",
		endpoints + "--azure-cloud=Private":                                         "",
		endpoints:                                                                   "are only for --azure-cloud=Private",
		"--azure-create-settle=0s":                                                  "--azure-create-settle is 0s",
		"--azure-allow-address=localhost":                                           `--azure-allow-address: "localhost"`,
		"--azure-deny-address=10.0.0.0/33":                                          `--azure-deny-address: "10.0.0.0/33"`,
		"--azure-ca-file=" + empty:                                                  "--azure-ca-file contains no certificate",
		"--azure-ca-file=/nowhere":                                                  "--azure-ca-file: open /nowhere",
	} {
		var s settings
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.addFlags(fs)
		if err := fs.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		_, err := s.options()
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("%q: got %v, want an error with %q", flags, err, message)
		}
	}
}
