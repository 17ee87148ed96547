package healthcheck

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: health-policy-selection.
func TestBuiltInPolicyFollowsFlags(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string // conditions, or an error
		fail bool
	}{
		{"",
			"Ready=Unknown:10m0s Ready=False:10m0s KernelDeadlock=True:10m0s ReadonlyFilesystem=True:10m0s DiskPressure=True:10m0s NetworkUnavailable=True:10m0s", false},
		{"--health-timeout=1m --health-node-conditions=A,B", "Ready=Unknown:1m0s Ready=False:1m0s A=True:1m0s B=True:1m0s",
			false},
		{"--health-node-conditions=", "Ready=Unknown:10m0s Ready=False:10m0s", false},
		{"--health-node-conditions=Ready=Unknown:5m,DiskPressure=True:15m,A=False,B,A=False:1s",
			"Ready=Unknown:5m0s Ready=False:10m0s DiskPressure=True:15m0s A=False:1s B=True:10m0s", false},
		{"--health-node-conditions=A=yes", `--health-node-conditions contains "A=yes": the status is "yes"`, true},
		{"--health-node-conditions=A=True:", `contains "A=True:": the timeout is ""`, true},
		{"--health-node-conditions=A=True:0s", `contains "A=True:0s": the timeout is "0s"`, true},
		{"--health-node-conditions=A=True:-1m", `contains "A=True:-1m": the timeout is "-1m"`, true},
		{"--health-node-conditions=A:5m", `contains "A:5m": "A:5m" is not the type of a condition`, true},
		{"--health-node-conditions=Ready=True:5m", `contains "Ready=True:5m": a Node with Ready=True is healthy`, true},
		{"--health-timeout=0s", "--health-timeout is 0s", true},
		{"--health-node-conditions=Ready", `--health-node-conditions contains "Ready": a Node`, true},
		{"--health-max-unhealthy=some", `--health-max-unhealthy is "some"`, true},
		{"--health-max-unhealthy=-1", `--health-max-unhealthy is "-1"`, true},
		{"--health-meltdown-threshold=0", "--health-meltdown-threshold is 0", true},
		{"--health-meltdown-threshold=101", "--health-meltdown-threshold is 101", true},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var b BuiltIn
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			b.AddFlags(fs)
			if err := fs.Parse(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			p, err := b.Policy()
			if (err != nil) != tc.fail {
				t.Fatalf("error: %v", err)
			}
			if tc.fail {
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %q, want %q", err, tc.want)
				}
				return
			}
			var got []string
			for _, c := range p.Conditions {
				got = append(got, string(c.Type)+"="+string(c.Status)+":"+c.Timeout.Duration.String())
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%v, want %s", got, tc.want)
			}
			if p.Type != v1beta1.RemediationReplace || p.limit(10) != 4 {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestEmptyFieldsOfCheckHaveDefaults(t *testing.T) {
	c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	p := PolicyOf(c)
	if p.Type != v1beta1.RemediationReplace || p.Reason != v1beta1.ReasonMachineHealthCheck || p.limit(10) != 4 ||
		p.Startup != 0 || p.MaxRetries != nil {
		t.Errorf("%+v", p)
	}
	c.Spec.NodeStartupTimeout = &metav1.Duration{Duration: time.Minute}
	c.Spec.Remediation.Type = v1beta1.RemediationExternal
	if p = PolicyOf(c); p.Reason != v1beta1.ReasonExternalRemediation || p.Startup != time.Minute {
		t.Errorf("%+v", p)
	}
}

// Rule: unhealthy-range-limits-remediation.
func TestInvalidRangeIsNoRange(t *testing.T) {
	for text, valid := range map[string]bool{"[3-5]": true, "[0-0]": true, "": false, "[5-3]": false, "3-5": false,
		"[3-5": false, "[-1-5]": false, "[1-9999999999]": false, "[3,5]": false, "[３-５]": false, "[3-5]\n": false} {
		p := PolicyOf(&v1beta1.MachineHealthCheck{Spec: v1beta1.MachineHealthCheckSpec{UnhealthyRange: text}})
		if (p.Range != nil) != valid || valid && p.Range.String() != text {
			t.Errorf("%q is the range %v", text, p.Range)
		}
	}
}
