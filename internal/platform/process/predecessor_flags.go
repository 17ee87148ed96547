package process

import (
	"errors"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// predecessorFlags are flags of machine-controller-manager. If a process has the flag newName, it also accepts the old
// name. Otherwise the process rejects the old name, and the error text is in the field advice.
var predecessorFlags = []struct{ name, newName, advice string }{
	{"safety-up", "overshoot-tolerance", "set --overshoot-tolerance of machinist-manager"},
	{"safety-down", "overshoot-recovery", "set --overshoot-recovery of machinist-manager"},
	{"machine-safety-overshooting-period", "overshoot-check-period", "set --overshoot-check-period of machinist-manager"},
	{"machine-safety-orphan-vms-period", "orphan-check-period", "set --orphan-check-period of the provider"},
	{"machine-safety-apiserver-statuscheck-period", "apiserver-check-period", ""},
	{"machine-safety-apiserver-statuscheck-timeout", "apiserver-check-timeout", ""},
	{"machine-health-timeout", "health-timeout",
		"set --health-timeout of machinist-manager, or create a MachineHealthCheck"},
	{"machine-creation-timeout", "", "set timeouts.creation in the spec of machines and in the templates of fleets"},
	{"machine-drain-timeout", "", "set timeouts.drain in the spec of machines and in the templates of fleets"},
}

// AddPredecessorFlags registers the flags of machine-controller-manager, and hides them in the help. Call it after all
// other flags are registered.
func AddPredecessorFlags(fs *pflag.FlagSet) {
	for _, f := range predecessorFlags {
		flag := &pflag.Flag{Name: f.name, Value: refusal(f.advice), Hidden: true}
		if current := fs.Lookup(f.newName); current != nil {
			flag.Value, flag.DefValue, flag.Usage = current.Value, current.DefValue, "Alias of --"+f.newName+"."
		}
		fs.AddFlag(flag)
	}
}

// LogPredecessorFlags logs the new name of each flag of machine-controller-manager that is set.
func LogPredecessorFlags(log logr.Logger, fs *pflag.FlagSet) {
	for _, f := range predecessorFlags {
		if fs.Changed(f.name) {
			log.Info("Flag of machine-controller-manager has another name in Machinist", "flag", "--"+f.name,
				"name", "--"+f.newName)
		}
	}
}

// refusal implements pflag.Value for a flag of machine-controller-manager that this process does not have. The text
// of this Value is the error for users who set the flag, and explains what to set instead.
type refusal string

// Set implements pflag.Value.
func (r refusal) Set(string) error { return errors.New(string(r)) }

// String implements pflag.Value.
func (r refusal) String() string { return "" }

// Type implements pflag.Value.
func (r refusal) Type() string { return "string" }
