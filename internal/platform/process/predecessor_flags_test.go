package process

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
)

func TestFlagsOfMachineControllerManager(t *testing.T) {
	for _, test := range []struct {
		arg   string
		check func(*Config) bool
		// If logged is set, the process must accept the old flag, and must log this name of the flag in Machinist. If
		// refused is set, the process must return an error that contains this text.
		logged, refused string
	}{
		{arg: "--machine-safety-apiserver-statuscheck-period=2m", logged: "--apiserver-check-period",
			check: func(c *Config) bool { return c.StatusCheckPeriod.String() == "2m0s" }},
		{arg: "--machine-safety-apiserver-statuscheck-timeout=7s", logged: "--apiserver-check-timeout",
			check: func(c *Config) bool { return c.StatusCheckTimeout.String() == "7s" }},
		{arg: "--machine-safety-apiserver-statuscheck-timeout=soon", refused: "invalid duration"},
		{arg: "--apiserver-check-period=2m", check: func(c *Config) bool { return c.StatusCheckPeriod.String() == "2m0s" }},
		{arg: "--machine-creation-timeout=20m", refused: "set timeouts.creation"},
		{arg: "--machine-drain-timeout=2h", refused: "set timeouts.drain"},
		{arg: "--safety-up=2", refused: "set --overshoot-tolerance of machinist-manager"},
	} {
		config, flags := DefaultConfig("test"), pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.AddFlags(flags)
		AddPredecessorFlags(flags)
		err := flags.Parse([]string{test.arg})
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: got %v, want an error that contains %q", test.arg, err, test.refused)
		}
		if test.check != nil && !test.check(config) {
			t.Errorf("%s has no effect", test.arg)
		}
		var log []string
		LogPredecessorFlags(funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}), flags)
		if len(log) > 1 || (len(log) == 0) != (test.logged == "") || !strings.Contains(strings.Join(log, ""), test.logged) {
			t.Errorf("%s: the log is %q, want a line with %q", test.arg, log, test.logged)
		}
		if strings.Contains(flags.FlagUsages(), "machine-") {
			t.Errorf("the help shows flags of machine-controller-manager:\n%s", flags.FlagUsages())
		}
	}
}
