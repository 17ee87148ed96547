package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestProviderPermissions(t *testing.T) {
	for name, test := range map[string]struct {
		args           []string
		reports, fails string
	}{
		"azure": {args: []string{"azure", "--subscription=s", "--resource-group=g"},
			reports: `"/subscriptions/s/resourceGroups/g"`},
		"azure with a field": {
			args: []string{"azure", "--subscription=s", "--with=scaleSetID"}, reports: "virtualMachineScaleSets/write",
		},
		"azure with a role name": {args: []string{"azure", "--subscription=s", "--role-name=Mine"}, reports: `"Name": "Mine"`},
		"openstack": {args: []string{"openstack"},
			reports: `{"service":"compute","method":"POST","path":"/v2.1/servers"}`},
		"openstack with a field": {args: []string{"openstack", "--with=ports.trunk"},
			reports: `{"service":"network","method":"DELETE","path":"/v2.0/trunks/*"}`},
		"vsphere":              {args: []string{"vsphere"}, reports: "Resource.AssignVMToPool\n"},
		"the simulated cloud":  {args: []string{"sim"}, reports: "has no roles"},
		"without subscription": {args: []string{"azure"}, fails: "--subscription is not set"},
		"an unknown field":     {args: []string{"azure", "--subscription=s", "--with=x"}, fails: `--with: the field "x" needs no further actions`},
		"an unknown provider":  {args: []string{"gcp"}, fails: `unknown provider "gcp": the known providers are azure, libvirt, openstack, sim, vsphere`},
		"a flag of azure":      {args: []string{"sim", "--subscription=s"}, fails: "--subscription is only for azure"},
		"a role for openstack": {args: []string{"openstack", "--role-name=r"}, fails: "--role-name is only for azure"},
		"a field without role": {args: []string{"sim", "--with=x"}, fails: "--with: the provider sim has no role document"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := ProviderCommand(NewEnv(&out, &out))
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetArgs(append([]string{"permissions"}, test.args...))
			err := cmd.Execute()
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got the error %v, want %q", err, test.fails)
			}
			if !strings.Contains(out.String(), test.reports) {
				t.Errorf("got %s", out.String())
			}
		})
	}
}
