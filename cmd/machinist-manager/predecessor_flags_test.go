package main

import (
	"strings"
	"testing"
)

func TestManagerAcceptsFlagsOfMachineControllerManager(t *testing.T) {
	for _, test := range []struct{ old, ours, value string }{
		{"safety-up", "overshoot-tolerance", "7"},
		{"safety-down", "overshoot-recovery", "3"},
		{"machine-safety-overshooting-period", "overshoot-check-period", "2m0s"},
		{"machine-safety-apiserver-statuscheck-period", "apiserver-check-period", "2m0s"},
		{"machine-safety-apiserver-statuscheck-timeout", "apiserver-check-timeout", "7s"},
		{"machine-health-timeout", "health-timeout", "7m0s"},
	} {
		cmd := command()
		if err := cmd.ParseFlags([]string{"--" + test.old + "=" + test.value}); err != nil {
			t.Error(err)
		}
		if got := cmd.Flags().Lookup(test.ours).Value.String(); got != test.value {
			t.Errorf("--%s=%s sets --%s to %s", test.old, test.value, test.ours, got)
		}
	}
	err := command().ParseFlags([]string{"--machine-safety-orphan-vms-period=15m"})
	if err == nil || !strings.Contains(err.Error(), "set --orphan-check-period of the provider") {
		t.Errorf("got %v, want an error that names --orphan-check-period", err)
	}
}
