package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestPermissionsArePrintedForTheCloud(t *testing.T) {
	for name, test := range map[string]struct {
		args           []string
		reports, fails string
	}{
		"azure": {args: []string{"azure", "--subscription=s", "--resource-group=g"},
			reports: `"/subscriptions/s/resourceGroups/g"`},
		"azure with a field": {
			args: []string{"azure", "--subscription=s", "--with=scaleSetID"}, reports: "virtualMachineScaleSets/write",
		},
		"azure under a name":   {args: []string{"azure", "--subscription=s", "--role-name=Mine"}, reports: `"Name": "Mine"`},
		"the simulated cloud":  {args: []string{"sim"}, reports: "has no roles"},
		"without subscription": {args: []string{"azure"}, fails: "--subscription is not set"},
		"an unknown field":     {args: []string{"azure", "--subscription=s", "--with=x"}, fails: `--with: no further action is needed for the field "x"`},
		"an unknown provider":  {args: []string{"gcp"}, fails: `"gcp" is not known here: known are azure, sim`},
		"a flag of another":    {args: []string{"sim", "--subscription=s"}, fails: "--subscription is for azure"},
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
